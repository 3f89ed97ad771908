"""The web console: pages and JSON about brokers, topics, groups and Redis."""
