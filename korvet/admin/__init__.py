"""Changes of configs and topics that clients request."""
