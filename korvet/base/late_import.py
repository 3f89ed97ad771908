"""Import a module of aiokafka when it is first used: all of aiokafka is imported then.

Its modules import each other. If two threads begin to import two of them at once, Python ends the
wait of one for the other with an ImportError: a broker decodes in its event loop and in threads.
"""

from importlib import import_module
from threading import RLock
from typing import Any

_lock = RLock()
_known: dict[str, Any] = {}


def aiokafka(name: str) -> Any:
    """Return that module of aiokafka, which one thread at a time imports."""
    found = _known.get(name)
    if found is None:
        with _lock:
            found = _known[name] = import_module(f"aiokafka.{name}")
    return found
