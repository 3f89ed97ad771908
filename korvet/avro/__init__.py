"""Avro keys and values for people: schemas from files or a schema registry, values as JSON."""
