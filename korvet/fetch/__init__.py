"""Answering a Fetch: read partitions, wait for records, encode them for the client's version."""
