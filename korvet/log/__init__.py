"""The log of a partition: entries, offsets, reading, appending, cleaning."""
