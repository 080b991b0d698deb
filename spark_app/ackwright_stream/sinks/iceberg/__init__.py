"""An Apache Iceberg table as a sink. Positions are properties of the table."""
