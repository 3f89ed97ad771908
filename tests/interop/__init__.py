"""Real clients over real sockets: what a Kafka client sees, whichever broker answers."""
