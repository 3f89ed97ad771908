"""Notify systemd of the start, the stop and the health of the broker (sd_notify).

Without the variables that systemd sets for Type=notify and WatchdogSec, nothing is sent.
"""

import os
import socket

import anyio

SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
EXTENDED = "EXTEND_TIMEOUT_USEC=30000000"
"""Gives a start 30 s more than now, whatever TimeoutStartSec is."""
READY, STOPPING, WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(state: str) -> None:
    """Send a state to systemd. A failure has no effect on the broker."""
    address = os.environ.get(SOCKET, "")
    if address[:1] not in ("/", "@"):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), ("\0" + address[1:]) if address[0] == "@" else address)
    except OSError:
        pass


def forget() -> None:
    """Send nothing from now on: a process that the main one started is not the service's."""
    os.environ.pop(SOCKET, None)


def watchdog_s() -> float | None:
    """Return the interval of WATCHDOG=1, half of the service's WatchdogSec; None without one."""
    microseconds, pid = os.environ.get(WATCHDOG_USEC, ""), os.environ.get(WATCHDOG_PID)
    if not microseconds.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 2e6 or None


async def keep_starting() -> None:
    """Extend the start until cancelled: it waits for Redis as long as that is away."""
    while True:
        notify(EXTENDED)
        await anyio.sleep(10)


async def keep_alive() -> None:
    """Send WATCHDOG=1 from the event loop: systemd restarts a broker whose loop hangs."""
    interval_s = watchdog_s()
    while interval_s is not None:
        notify(WATCHDOG)
        await anyio.sleep(interval_s)
