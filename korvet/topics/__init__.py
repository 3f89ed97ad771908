"""Topics: the cached table and changes to it."""
