"""Broker, topic and group settings under Kafka's names: type, default and effect."""
