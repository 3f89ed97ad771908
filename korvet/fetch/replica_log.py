"""Log requests of clients that claim to be replicas: they are answered like consumers."""

from korvet.base import logfmt

MAX_LOGGED = 1000

log = logfmt.get("fetch.replica_log")


class ReplicaLog:
    """Logs each pair of host and replica id once."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, int]] = set()

    def note(self, replica_id: int, host: str, client_id: str | None) -> None:
        """Log a request with a replica id."""
        key = (host, replica_id)
        if key in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(key)
        log.info(
            "replica id ignored: replicas are answered like consumers",
            client=host,
            client_id=client_id,
            replica_id=replica_id,
        )
