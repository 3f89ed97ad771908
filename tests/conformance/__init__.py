"""One table of requests, put to Apache Kafka once and to Korvet in every test run."""
