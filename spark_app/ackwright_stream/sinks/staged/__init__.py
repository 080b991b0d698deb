"""What the sinks share whose tasks stage files and whose driver commits them: tables, and how a commit is decided."""
