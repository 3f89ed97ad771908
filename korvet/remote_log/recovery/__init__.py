"""Disaster recovery: snapshots of the metadata in the remote store, and restore from them."""
