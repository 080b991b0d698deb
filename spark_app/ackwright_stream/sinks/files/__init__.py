"""Parquet files as a sink. The files are also the positions."""
