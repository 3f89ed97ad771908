"""A connection that listens: once subscribed it takes messages where others take replies."""

import logging
from collections.abc import Callable
from typing import Any

from korvet.scripts.call import Arg
from korvet.store.connection import PipelinedConnection
from korvet.store.resp import NOTHING, ErrorReply, Packer

logger = logging.getLogger("korvet.store")


class PubSubConnection(PipelinedConnection):
    """A link that, once `hear` was called, takes messages instead of replies."""

    _hear: Callable[[list[Any]], None] | None = None
    _alive = True
    _refused = False

    def hear(self, heard: Callable[[list[Any]], None]) -> None:
        """From now on whatever arrives goes to `heard`."""
        self._hear = heard

    def say(self, *command: Arg) -> None:
        """The command is on its way; its reply will be heard."""
        packer = Packer()
        packer.add(command)
        if self._transport is not None:
            self._transport.writelines(packer.take())

    def buffer_updated(self, nbytes: int) -> None:
        if self._hear is None:
            super().buffer_updated(nbytes)
            return
        self._alive = True
        self._feed(self._buffer, 0, nbytes)
        while (reply := self._gets()) is not NOTHING:
            if isinstance(reply, list):
                self._hear(reply)
            elif isinstance(reply, ErrorReply) and not self._refused:
                self._refused = True
                logger.warning("Redis or a Sentinel refuses to be listened to: %s", reply)

    def _watch(self) -> None:
        """Silence is normal here, so the server is asked; no answer until next time is the end."""
        if self._hear is None:
            super()._watch()
            return
        self._watch_handle = self._loop.call_later(self._timeout_s, self._watch)
        if not self._alive:
            self.close(f"Redis answered nothing for {self._timeout_s:g} s")
            return
        self._alive = False
        self.say("PING")
