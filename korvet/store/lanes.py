"""The connections to one server, and which of them takes a call.

Three, so that the long does not stand before the short: a thousand records on their way into a log
hold up no heartbeat, and a long reply holds up neither. Each keeps the order of what it takes.
"""

from typing import Any

from korvet.scripts.call import Call
from korvet.store.lane import Lane, Listener, Manner
from korvet.store.locate import Find

GROUPS = "group."
"""What membership and commits are called; a log never waits for them, nor they for a log."""


class Lanes:
    """A lane for what groups write, one for all else that writes, one for what only reads."""

    def __init__(self, find: Find, manner: Manner, listener: Listener) -> None:
        self.writes = Lane(find, manner, listener)
        self.groups = Lane(find, manner, listener)
        self.reads = Lane(find, manner, listener)
        self.all = (self.writes, self.groups, self.reads)

    def for_call(self, call: Call[Any]) -> Lane:
        """The lane that takes the call: always the same one for a script."""
        if not call.script.writes:
            return self.reads
        return self.groups if call.script.name.startswith(GROUPS) else self.writes
