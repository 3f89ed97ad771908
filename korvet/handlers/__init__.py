"""Handlers of Kafka's APIs, one file each: behaviour, versions, errors, and what is left out."""
