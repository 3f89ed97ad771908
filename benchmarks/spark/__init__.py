"""Spark against the log: the cases of docs/benchmarks, ours beside Spark's own Kafka connector."""
