"""A file per Kafka API: its request, its response, and the structs inside them.

A field is explained only where its name does not explain it.
"""
