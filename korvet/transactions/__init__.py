"""Transactions: coordinator, added partitions, hanging transactions."""
