"""Patterns of names in the syntax of RE2."""
