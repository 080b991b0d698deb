"""`ackwright demo`: runs a pipeline under each guarantee, kills processes, and counts lost and duplicated records."""
