"""`ackwright demo`: real records through a real pipeline under each guarantee while things are killed, then counted."""
