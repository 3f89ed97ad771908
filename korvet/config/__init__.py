"""Every setting under Kafka's names: type, default, effect."""
