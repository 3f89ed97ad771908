"""Live brokers and which of them coordinates what."""
