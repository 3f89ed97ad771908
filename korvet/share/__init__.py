"""Share partitions for ShareFetch and ShareAcknowledge: sessions, acquire, acknowledge, wait."""
