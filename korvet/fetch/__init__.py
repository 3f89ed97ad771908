"""Fetch: fill partitions and wait for data."""
