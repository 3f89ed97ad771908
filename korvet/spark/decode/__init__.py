"""Decode stream entries into Arrow record batches."""
