"""Restore the tables of a snapshot: configs, ACL rules, users, ids of deleted topics."""

import msgspec

from korvet.base.errors import ErrorCode
from korvet.remote_log.recovery.snapshot import Snapshot
from korvet.scripts.call import decode_group
from korvet.scripts.keys import Keys
from korvet.security import credentials
from korvet.store.async_store import AsyncStore


class RestoreRefused(Exception):
    """The restore cannot begin; the message says why and what to do."""


def check(error: int, what: str) -> None:
    """Raise RestoreRefused if a script refused `what`."""
    if error != ErrorCode.NONE:
        raise RestoreRefused(
            f"{what} cannot be restored ({ErrorCode(error).name}): Redis changed meanwhile. "
            "Stop the brokers, empty Redis, and repeat the restore."
        )


async def restore_tables(store: AsyncStore, keys: Keys, snapshot: Snapshot) -> None:
    """Write configs, ACL rules, users and the ids of deleted topics. Raises RestoreRefused."""
    for resource, configs in snapshot.configs.items():
        wanted = msgspec.json.encode(configs, order="deterministic")
        call = keys.config_alter(resource=decode_group(resource), expected=b"", wanted=wanted)
        check((await store.run(call)).error, f"configs of {resource}")
    if snapshot.acls:
        rules = [rule.encode("utf-8", "surrogateescape") for rule in snapshot.acls]
        await store.run(keys.acl_create(rules))
    for field, raw in snapshot.users.items():
        mechanism, _, name = decode_group(field).partition(":")
        credential = credentials.decode(raw.encode())
        if credential is not None:
            rows = [(mechanism, raw.encode(), credential.shape)]
            call_user = keys.user_alter(rows, user=name, condition="")
            check((await store.run(call_user)).error, f"user {name}")
    for topic_id in snapshot.deleted_topics:
        await _note_deleted(store, keys, topic_id)


async def _note_deleted(store: AsyncStore, keys: Keys, topic_id: str) -> None:
    """Store the id of a deleted topic, so that brokers delete its objects."""
    call = keys.topic_create(
        keys.logs(topic_id, range(0)),
        topic=topic_id,
        definition=b"{}",
        topic_id=topic_id,
        format="batch",
        mode="dense",
        bits=0,
    )
    await store.run(call)
    await store.run(
        keys.topic_delete_definition(topic=topic_id, expected=b"{}", remote_id=topic_id)
    )
