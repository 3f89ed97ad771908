"""Ports of loopback for servers that take no port 0.

Rules
- Ports are below 32,768, in a range for each process. The kernel gives ports from 32,768 on to
  other sockets, so another test may take such a port before the server does.
"""

import itertools
import os
import socket

FIRST = 12_000
EACH = 1_000
"""Ports of one of pytest's workers."""
WORKERS = 20
_numbers = itertools.count(os.getpid() * 61)
"""Begins far apart in processes with neighbouring ids: without pytest-xdist they share a range."""


def free_port() -> int:
    """Return a port that no socket has; another one at each call."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for number in itertools.islice(_numbers, EACH):
        port = FIRST + worker % WORKERS * EACH + number % EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen()
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port for worker {worker}: end servers of earlier runs")


def free_ports(count: int) -> list[int]:
    """Return that many ports."""
    return [free_port() for _ in range(count)]
