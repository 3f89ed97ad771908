"""Spark jobs between Korvet and a data lake: archive, replay, verify, stats.

Rules
- The table alone records what is archived: every commit stores, atomically with its rows, which
  offsets of which partitions the table holds.
- The log is trimmed only up to what a commit says the table holds.
docs/pipeline.md is the guide.
"""
