"""Background tasks of a broker: retention, compaction, expiry, scheduled records, metrics."""
