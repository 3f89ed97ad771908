"""Names of topics and groups for shell completion, from a Redis that runs already."""

import typer

from korvet.cli.target import target_of


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics whose names begin with `incomplete`."""
    return [name for name in _fields(context, "topics") if name.startswith(incomplete)]


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups whose ids begin with `incomplete`."""
    from korvet.scripts.call import decode_group

    found = map(decode_group, _fields(context, "groups"))
    return [name for name in found if name.startswith(incomplete)]


def _fields(context: typer.Context, table: str) -> list[str]:
    """Return the names in a table; none if there is no answer, which a shell cannot show."""
    from korvet.cli.redis_target import running
    from korvet.scripts.keys import Keys
    from korvet.store.sync_store import SyncStore

    try:
        target = target_of(context.params, context.find_root().params)
        url = running(target)
        if url is None:
            return []
        keys = Keys(target.namespace)
        with SyncStore.connect(url) as store:
            names = store.command("HKEYS", keys.topics() if table == "topics" else keys.groups())
    except Exception:
        return []
    return sorted(name.decode() for name in names if name[:1] != b":")
