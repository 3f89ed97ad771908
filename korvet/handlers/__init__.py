"""One file per Kafka API: what is served, in which versions, with which errors."""
