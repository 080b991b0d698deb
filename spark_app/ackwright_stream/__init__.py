"""The job: a Spark Structured Streaming application that delivers records from Kafka to a sink under a guarantee."""
