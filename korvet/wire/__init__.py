"""Bytes to values and back. No module of this package waits or uses Redis."""
