"""What the hundreds of processes that tests start are given, whoever started the tests.

- Bytecode. Where PYTHONDONTWRITEBYTECODE is set, as in many container images, each broker and each
  of Spark's workers would compile all of Korvet anew, which is a third of what its start
  takes. They share a folder, pytest's cache where it has one that can be written to: nothing is put
  beside the sources.
- SIGINT. A run in the background of a shell ignores it, and so would all that it starts.
"""

import os
import signal
import sys
import tempfile
from contextlib import suppress

import pytest


def register(config: pytest.Config) -> None:
    """It is so from now on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.environ.get("PYTHONDONTWRITEBYTECODE") or sys.pycache_prefix:
        return
    folder = folder_for(config)
    del os.environ["PYTHONDONTWRITEBYTECODE"]
    os.environ["PYTHONPYCACHEPREFIX"] = folder
    # And the modules of the tests themselves: the next run begins in half of the time.
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder


def folder_for(config: pytest.Config) -> str:
    """Kept until the next run, unless the sources cannot be written to: then until the end."""
    if config.pluginmanager.has_plugin("cacheprovider"):
        with suppress(OSError):
            folder = str(config.cache.mkdir("bytecode"))  # type: ignore[union-attr]
            if os.access(folder, os.W_OK):
                return folder
    made = tempfile.TemporaryDirectory(prefix="kv-")
    config.add_cleanup(made.cleanup)
    return made.name
