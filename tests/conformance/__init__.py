"""A table of requests, sent to Apache Kafka once and to Korvet in every test run."""
