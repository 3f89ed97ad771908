"""The lines on stdout that say where clients connect; on a terminal, also what to do next."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from korvet.base import logfmt
from korvet.broker.ops.finding import times_as_offsets
from korvet.config.broker_config import Config
from korvet.config.listeners import Address, Listener

if TYPE_CHECKING:
    from korvet.embedded_redis.server import RedisServer

PRESETS_EXPLAINED = (
    "presets: `--preset redis`, as now: each record is a stream entry that redis-cli shows",
    "         `--preset kafka`: offsets count 0, 1, 2, batches are stored as sent, and faster",
)
BUDGET = "local.memory.bytes"
log = logfmt.get("serve")


class Announcement:
    """The lines of one start. A program that starts a broker reads those of `listening`.

    `server` is the Redis that the broker has started; `data` says what else it reads.
    """

    def __init__(
        self, config: Config, server: "RedisServer | None" = None, data: str | None = None
    ) -> None:
        self._config = config
        self._is_new = (server is None or server.is_first_start) and not config.read_only
        self._data = data or f"the Redis of --redis, in keys that begin with {config.namespace}:"
        if server is not None:
            self._data = f"{server.data_dir} (its Valkey ends with this broker)"

    def listening(self, listeners: Sequence[Listener]) -> None:
        """Write a line for each listener, and what to do next if a terminal shows it."""
        lines = [f"listening on {listener}" for listener in listeners]
        if sys.stdout.isatty():
            lines += self._next_steps(listeners[0].address)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        settings = self._config.settings
        if not sys.stdout.isatty() and settings.integer(BUDGET) >= 0:
            log.info(
                "memory budget of Redis",
                local_memory_bytes=settings.integer(BUDGET),
                segments=self._segments or "off",
            )

    @property
    def _segments(self) -> str | None:
        """The URL of the segments, None if tiered storage is off."""
        settings = self._config.settings
        if not settings.flag("remote.log.storage.system.enable"):
            return None
        return settings.text_of("remote.storage.url")

    def _next_steps(self, where: Address) -> Iterator[str]:
        config = self._config
        yield f"data:    {self._data}"
        budget = config.settings.integer(BUDGET)
        if budget >= 0:
            segments = self._segments
            then = "no further records" if segments is None else f"older records are in {segments}"
            yield f"memory:  {budget / 2**30:.1f} GiB for Redis; {then}"
        yield f"connect: bootstrap.servers={where}"
        yield "next:    `korvet quickstart` in another terminal, `korvet top`, `korvet doctor`"
        if self._is_new and not config.preset and config.settings.text("offset.mode") == "time":
            yield f"note:    {times_as_offsets('new topics')}"
            yield from PRESETS_EXPLAINED


def announce_legacy(host: str, port: int) -> None:
    """Write the next line, with --legacy-listen: clients of Kafka 0.7 may connect."""
    sys.stdout.write(f"legacy listening on {Address(host, port)}\n")
    sys.stdout.flush()


def announce_console(url: str) -> None:
    """Write the next line: where the console is.

    A program that reads the lines of the listeners may have closed stdout.
    """
    sys.stdout.flush()
    with suppress(OSError):
        os.write(sys.stdout.fileno(), f"console at {url}\n".encode())
