"""Corrections of `korvet doctor --fix`: each can be repeated, and none can lose a record."""

from collections.abc import Generator, Iterator

from korvet.scripts import bundle
from korvet.store.errors import CommandFailed
from korvet.store.handshake import parse_info
from korvet.store.sync_store import SyncStore


def fixed(store: SyncStore) -> Iterator[str]:
    """Correct the server's settings and its script cache; yield a sentence for each change.

    A change that the server refuses is a sentence too.
    """
    info = parse_info(store.command("INFO"))
    changed = False
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        changed |= yield from _set(store, "maxmemory-policy", "noeviction")
    if info.get("aof_enabled") != "1" and info.get("loading") != "1":
        changed |= yield from _set(store, "appendonly", "yes")
    if changed:
        yield _saved(store)
    yield from _load(store)


def _set(store: SyncStore, name: str, value: str) -> Generator[str, None, bool]:
    """Set the server's setting; return whether that succeeded."""
    try:
        store.command("CONFIG", "SET", name, value)
    except CommandFailed as error:
        yield f"{name} could not be set to {value}: {error}"
        return False
    yield f"{name} is {value} now"
    return True


def _saved(store: SyncStore) -> str:
    try:
        store.command("CONFIG", "REWRITE")
    except CommandFailed as error:
        return f"the settings are lost when Redis restarts, CONFIG REWRITE failed: {error}"
    return "the settings are saved in the configuration file of Redis"


def _load(store: SyncStore) -> Iterator[str]:
    bundles = [bundle.load(name) for name in bundle.names()]
    there = store.command("SCRIPT", "EXISTS", *(each.sha1 for each in bundles))
    missing = [each for each, found in zip(bundles, there, strict=True) if not int(found)]
    for each in missing:
        store.command("SCRIPT", "LOAD", each.text)
    if missing:
        yield f"{len(missing)} scripts loaded"
