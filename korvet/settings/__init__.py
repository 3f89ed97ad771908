"""Every setting Korvet knows, under Kafka's own names: what it is, what it may be, what it does."""
