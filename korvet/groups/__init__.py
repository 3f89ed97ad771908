"""Consumer groups: coordinator, heartbeats, commits, assignments."""
