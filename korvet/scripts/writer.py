"""Producer ids of Spark's writers, and how long a partition keeps their state."""

KEEP_MS = 366 * 86_400_000
"""Milliseconds for which a silent writer and its tasks' appends are kept."""
KEEP_JOB_MS = 7 * 86_400_000
"""Milliseconds for which the tasks of a finished job are kept: Spark may retry a task."""
IDS_FROM = 1 << 52
"""The first producer id of writers that may return; Lua counts exactly up to 2^53."""
JOB_IDS_FROM = 1 << 51
"""The first producer id of one-time jobs.

From this id on, a partition never takes a producer's later batch first (log.append).
"""
CLASSES = (JOB_IDS_FROM, KEEP_JOB_MS, IDS_FROM, KEEP_MS)
"""`classes` of log.expire_producers: tasks of jobs, and last those of writers that may return."""
