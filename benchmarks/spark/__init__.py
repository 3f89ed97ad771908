"""Benchmarks of Spark: format `korvet` and Spark's own Kafka connector on the same cases."""
