"""The connections to one server, and which of them takes a call.

Four connections, so that long work does not delay short work: an append of a thousand records
delays no heartbeat, a long reply delays neither, and a large range of entries delays no short
command. Each keeps the order of its calls.
"""

from typing import Any

from korvet.scripts.call import Call
from korvet.store.handshake import ConnectOptions
from korvet.store.range_connection import RangeConnection
from korvet.store.reconnect import ConnectionEvents, ReconnectingConnection
from korvet.store.sentinel_lookup import Find

GROUPS = "group."
"""Prefix of membership and commit scripts: they and the log's scripts never wait for each other."""


class ConnectionSet:
    """A connection for writes of groups, one for other writes, one for reads, one for ranges."""

    def __init__(self, find: Find, options: ConnectOptions, listener: ConnectionEvents) -> None:
        self.writes = ReconnectingConnection(find, options, listener)
        self.groups = ReconnectingConnection(find, options, listener)
        self.reads = ReconnectingConnection(find, options, listener)
        self.ranges = ReconnectingConnection(find, options, listener, RangeConnection)
        self.ranges.others = (self.writes, self.groups, self.reads)
        self.all = (self.writes, self.groups, self.ranges, self.reads)

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        """Return the connection that takes the call: always the same one for a script."""
        if not call.script.writes:
            return self.reads
        return self.groups if call.script.name.startswith(GROUPS) else self.writes
