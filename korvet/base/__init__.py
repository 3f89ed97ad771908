"""Small tools that every package uses: errors, bounds in bytes, log lines, metrics."""
