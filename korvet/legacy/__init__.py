"""The Kafka 0.7 protocol: a separate listener on the same log."""
