"""The properties of a Redis server in INFO: version, history, replicas, state."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    """The properties that a server reported in its handshake."""

    name: str
    version: str
    cluster: bool
    info: Mapping[str, str]

    @property
    def history(self) -> str:
        """Return the run id; of a promoted replica also the id of its history since then.

        A former master keeps its run id if it becomes a replica and is promoted again.
        """
        run, promoted = self.info.get("run_id", ""), self.info.get("master_replid2", "0")
        return run if not promoted.strip("0") else f"{run}:{self.info.get('master_replid')}"


def describe_server(info: Mapping[str, str]) -> Server:
    """Return the program and version that the fields of INFO name."""
    valkey = info.get("valkey_version")
    return Server(
        name="Valkey" if valkey else "Redis",
        version=valkey or info.get("redis_version", "unknown"),
        cluster=info.get("cluster_enabled") == "1",
        info=info,
    )


def parse_info(reply: bytes) -> dict[str, str]:
    """Parse the `name:value` lines of an INFO reply."""
    rows = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in rows if colon}


def online_replicas(info: Mapping[str, str]) -> int:
    """Return how many replicas of a server are online, from its INFO."""
    return sum(
        "state=online" in value
        for name, value in info.items()
        if name.startswith("slave") and name[5:].isdigit()
    )


def why_writes_are_refused(info: Mapping[str, str]) -> str:
    """Return why a server refuses writes, from its INFO; empty if it does not.

    A full memory is no reason here: reads, and what frees memory, continue.
    """
    if info.get("aof_last_write_status", "ok") != "ok":
        return "the last write or sync of the append-only file failed: is the disk full?"
    if info.get("min_slaves_good_slaves") == "0":
        return (
            "min-replicas-to-write wants more replicas than are connected; "
            "Korvet sets it to 1 on its own Redis if its disk fails or is full: see the log"
        )
    return ""
