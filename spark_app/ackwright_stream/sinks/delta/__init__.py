"""A Delta Lake table as a sink. Positions are in the log of the table."""
