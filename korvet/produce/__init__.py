"""Produce requests: resolve topics, enlist partitions, append, wait for durability, respond."""
