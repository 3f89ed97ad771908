"""Check the examples of the specification's pages, as far as a machine can."""
