"""The job: a Spark Structured Streaming application that carries records from Kafka to a sink under a declared guarantee."""
