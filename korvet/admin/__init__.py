"""Changes of configs and topics asked for by clients."""
