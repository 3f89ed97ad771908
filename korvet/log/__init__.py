"""One partition's log: entries, offsets, reading, appending, cleaning."""
