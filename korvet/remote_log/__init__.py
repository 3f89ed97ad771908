"""Tiered storage: segments in a remote store, the copy task, and reads below the local start."""
