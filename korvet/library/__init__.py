"""The log from Python without a broker: the same topics, records and groups, over one Redis."""
