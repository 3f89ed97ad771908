"""Kafka 0.7's wire protocol, on a listener of its own, on the same log as everybody's."""
