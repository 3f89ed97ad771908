"""Measures a Kafka-speaking broker from outside: prebuilt bytes, no client library in the way."""
