"""The connections to one server, and which of them takes a call.

Three, so that the long does not stand before the short: a thousand records on their way into a log
hold up no heartbeat, and a long reply holds up neither. Each keeps the order of what it takes.
"""

from typing import Any

from korvet.scripts.call import Call
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection
from korvet.store.sentinel_lookup import Find

GROUPS = "group."
"""What membership and commits are called; a log never waits for them, nor they for a log."""


class ConnectionSet:
    """A lane for what groups write, one for all else that writes, one for what only reads."""

    def __init__(self, find: Find, manner: ConnectOptions, listener: Listener) -> None:
        self.writes = ReconnectingConnection(find, manner, listener)
        self.groups = ReconnectingConnection(find, manner, listener)
        self.reads = ReconnectingConnection(find, manner, listener)
        self.all = (self.writes, self.groups, self.reads)

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        """The lane that takes the call: always the same one for a script."""
        if not call.script.writes:
            return self.reads
        return self.groups if call.script.name.startswith(GROUPS) else self.writes
