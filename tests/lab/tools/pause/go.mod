module ackwright.io/lab/pause

go 1.24.0
