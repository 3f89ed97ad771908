"""Bytes to values and back. Nothing here waits, and nothing here knows Redis."""
