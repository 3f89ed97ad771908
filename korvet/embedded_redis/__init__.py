"""The Redis server that the broker starts when no URL is given."""
