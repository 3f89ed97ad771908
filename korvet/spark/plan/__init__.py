"""Plan a read: offsets, splits, limits and filters."""
