"""Korvet speaks the Kafka protocol and keeps the log in Redis Streams."""

__version__ = "0.1.0"
