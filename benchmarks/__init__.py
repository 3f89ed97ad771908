"""Measure a Kafka broker with prebuilt requests on plain sockets, without a client library."""
