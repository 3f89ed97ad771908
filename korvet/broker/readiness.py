"""What /readyz asks: whether Redis answers, and has the scripts."""

from functools import cache

import anyio

from korvet.scripts import bundle
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError

PATIENCE_S = 2.0


async def ready(store: AsyncStore) -> str | None:
    """None when every connection to Redis stands and every script is there: a missing one (SCRIPT
    FLUSH, a failover) is loaded first. Else the sentence that says what is wrong."""
    try:
        with anyio.fail_after(PATIENCE_S):
            await store.ready()
            await _load_missing(store)
    except TimeoutError:
        return f"Redis does not answer within {PATIENCE_S:g} s"
    except StoreError as error:
        return str(error)
    return None


async def _load_missing(store: AsyncStore) -> None:
    texts = _texts()
    there = await store.command("SCRIPT", "EXISTS", *texts)
    for text, here in zip(texts.values(), there, strict=True):
        if not here:
            await store.command("SCRIPT", "LOAD", text)


@cache
def _texts() -> dict[str, str]:
    """The scripts by their sha1."""
    bundles = [bundle.load(name) for name in bundle.names()]
    return {each.sha1: each.text for each in bundles}
