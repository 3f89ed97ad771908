"""A connection for pub/sub: it takes messages instead of replies."""

import logging
from collections.abc import Callable
from typing import Any

from korvet.scripts.call import Arg
from korvet.store.connection import PipelinedConnection
from korvet.store.resp import NOTHING, ErrorReply, Packer

logger = logging.getLogger("korvet.store")


class PubSubConnection(PipelinedConnection):
    """A connection that takes messages instead of replies once `on_message` was called."""

    _on_message: Callable[[list[Any]], None] | None = None
    _alive = True
    _refused = False

    def on_message(self, on_message: Callable[[list[Any]], None]) -> None:
        """Deliver everything that arrives from now on to `on_message`."""
        self._on_message = on_message

    def say(self, *command: Arg) -> None:
        """Send the command; its reply arrives as a message."""
        packer = Packer()
        packer.add(command)
        if self._transport is not None:
            self._transport.writelines(packer.take())

    def buffer_updated(self, nbytes: int) -> None:
        if self._on_message is None:
            super().buffer_updated(nbytes)
            return
        self._alive = True
        self._feed(self._buffer, 0, nbytes)
        while (reply := self._gets()) is not NOTHING:
            if isinstance(reply, list):
                self._on_message(reply)
            elif isinstance(reply, ErrorReply) and not self._refused:
                self._refused = True
                logger.warning("subscription failed: %s", reply)

    def _watch(self) -> None:
        """Ping the silent server; close the connection if no answer comes by the next check."""
        if self._on_message is None:
            super()._watch()
            return
        self._watch_handle = self._loop.call_later(self._timeout_s, self._watch)
        if not self._alive:
            self.close(f"Redis answered nothing for {self._timeout_s:g} s")
            return
        self._alive = False
        self.say("PING")
