"""Jobs between the log and a lake, on Spark: archive, replay, verify, stats.

Rules
- What is archived is told by the table alone: every commit carries, with its rows and in the same
  atomic step, which offsets of which partition the table holds from then on.
- The log forgets only what a commit says the table has.
docs/pipeline.md is the guide.
"""
