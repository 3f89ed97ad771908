"""Read a topic from an archive table and from Redis."""
