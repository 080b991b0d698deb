"""A table of a PostgreSQL database as a sink. Positions are in the same database."""
