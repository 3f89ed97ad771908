"""Notice that this process did not run for some time: a stopped process, a pause of its machine.

What clients sent before then is old: they may have repeated it at another broker, and gone on from
there. So it must not begin now.

Rules
- A stall is a time without a tick of the event loop, of max.stall.ms or more. It is noticed before
  anything else happens: each tick, each read from a client and each write to Redis compare the
  clock with the last tick.
- After a stall, `on_stall` closes the connections of before: those of clients, unread, and those to
  Redis, whose unwritten calls then never leave. A connection that waited to be accepted is closed
  too.
- The clock counts the time of a suspended machine where the system has such a clock (Linux). A
  virtual machine may hide a pause from all its clocks. `BrokerRegistration` compares them with
  Redis's.
- After a shorter pause, or if a request had to wait, a connection looks for its client's end before
  it begins the request (`has_ended`).
"""

import select
import socket
import struct
from collections.abc import Callable
from math import inf
from typing import Any

import anyio

from korvet.base import logfmt
from korvet.base.metrics import Metrics
from korvet.base.uptime import clock

TICK_S = 0.1
"""Interval of the ticks."""
LATE_S = 0.4
"""Age from which on the client of a request may have given up. It is above two ticks."""
RECENT_S = 10.0
"""Seconds after a stall in which connections that are accepted may be older than its end."""
_AGE_AT = 8 + 9 * 4
"""Where Linux's struct tcp_info has tcpi_last_data_sent. A socket that has sent nothing has the
time since it was connected there, in ms."""
_ENDED = getattr(select, "POLLRDHUP", 0)

log = logfmt.get("broker.stalls")


class StallWatch:
    """Watches one event loop, once `run` has begun; `max_stall_s` returns the setting."""

    def __init__(self, max_stall_s: Callable[[], float]) -> None:
        self._max_stall_s = max_stall_s
        self.on_stall: list[Callable[[str], None]] = []
        """Called with the reason when a stall was noticed."""
        self.metrics: Metrics | None = None
        self.alarm = inf
        """When a tick is overdue: from then on callers must ask `check`."""
        self.unread_since = -inf
        """The bytes that a client's socket has now arrived later than this moment."""
        self.late_before = -inf
        """The client of a request that arrived before this moment may have given up."""
        self.ticked = -inf
        """The last tick."""
        self.ended_at = -inf
        """When the last stall was noticed."""

    async def run(self) -> None:
        """Tick until cancelled."""
        self.ticked = clock()
        self._pass(self.ticked)
        try:
            while True:
                await anyio.sleep(TICK_S)
                now = clock()
                self.check(now)
                self._pass(now)
        finally:
            self.alarm = inf

    def check(self, now: float) -> bool:
        """Return whether a stall has just ended; then the connections of before are closed."""
        if now < self.alarm:
            return False
        seconds = now - self.ticked
        if seconds < self._max_stall_s():
            self.late_before = now - LATE_S
            return False
        self.ended("the broker process did not run", seconds)
        return True

    def check_now(self) -> None:
        """Check before something is done that must not be late."""
        self.check(clock())

    def ended(self, reason: str, seconds: float) -> None:
        """Close the connections of before, as this process did not run for that time."""
        now = clock()
        self.ended_at = now
        self._pass(now)
        log.warning("connections closed after a stall", reason=reason, seconds=round(seconds, 3))
        if self.metrics is not None:
            self.metrics.stalls.add()
        for call in self.on_stall:
            call(f"{reason} for {seconds:.1f} s")

    @property
    def is_recent(self) -> bool:
        """Return whether a stall ended a short time ago."""
        return clock() - self.ended_at < RECENT_S

    def waited(self, transport: Any) -> bool:
        """Return whether a new connection waited to be accepted while this process did not run."""
        return clock() - _age_s(transport.get_extra_info("socket")) < self.ended_at - LATE_S

    def _pass(self, now: float) -> None:
        self.unread_since, self.ticked = min(self.ticked, now), now
        self.alarm, self.late_before = now + TICK_S + LATE_S, now - LATE_S


def has_ended(transport: Any) -> bool:
    """Return whether the client has closed the connection, whatever is unread before its end.

    Only Linux reports an end behind unread bytes.
    """
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return False
    poller = select.poll()
    poller.register(found.fileno(), _ENDED)
    return bool(poller.poll(0))


def _age_s(row: Any) -> float:
    """Return for how long the system has had a connection on which nothing was sent; 0: unknown."""
    option = getattr(socket, "TCP_INFO", None)
    if row is None or option is None:
        return 0.0
    try:
        info = row.getsockopt(socket.IPPROTO_TCP, option, _AGE_AT + 4)
    except OSError:
        return 0.0
    return struct.unpack_from("I", info, _AGE_AT)[0] / 1000 if len(info) >= _AGE_AT + 4 else 0.0
