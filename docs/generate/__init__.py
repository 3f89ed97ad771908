"""Generate the pages, and the parts of pages, that come from tables and headers."""
