"""Append rows to topics, each row once."""
