"""The sink that is Kafka: rows go to topics, positions are the offsets of a consumer group, both in one transaction."""
