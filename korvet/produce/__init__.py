"""Produce: from a request to appends and their answers."""
