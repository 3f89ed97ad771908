"""The leader epoch in a process that is no broker (library, command line, Spark).

Before it uses a server of Redis that it has not used, it raises the epoch as a broker does. It
begins it in the logs if no other process has, and waits for the brokers that may know of lost
records. It knows no ends itself, and leaves transactions with lost records to the brokers.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from korvet.base.bounded import chunks
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.log.leader_epochs import ASK_S, AT_ONCE, UNDEFINED, begin_call
from korvet.scripts.keys import Keys
from korvet.store.errors import REPLICA_CODES, CommandFailed, ScriptFailed, StoreRefused
from korvet.store.redis_py import InlineStore, LibraryStore
from korvet.topics.table import PlainTable

NO_PROCESS = 1
"""`due` of broker.raise_epoch: no process has begun the epoch in every log."""
_accepted: set[tuple[str, str]] = set()
"""Namespaces, with the run ids of servers at which this process may use them."""


def servers_accepted() -> int:
    """Return a number that changes with each new server: it may have lost what was read before."""
    return len(_accepted)


def accept_by(
    keys: Keys, connect: Callable[[], LibraryStore | Awaitable[LibraryStore]]
) -> Callable[[str], Coroutine[Any, Any, None]]:
    """Return what the process does before it uses a server, on a store of `connect`.

    Raises StoreError: then the server must not be used. Nothing is done if this user may not write,
    or the server is a replica.
    """

    async def accept(run: str) -> None:
        if not run or (keys.namespace, run) in _accepted:
            return
        opened = connect()
        store = await opened if isinstance(opened, Awaitable) else opened
        try:
            await _begin(store, keys, run)
        except (CommandFailed, ScriptFailed):
            return  # A user who may only read.
        except StoreRefused as error:
            if error.code not in REPLICA_CODES:
                raise
            return
        finally:
            await store.close()
        _accepted.add((keys.namespace, run))

    return accept


async def _begin(store: LibraryStore, keys: Keys, run: str) -> None:
    begun = UNDEFINED
    sleep = time.sleep if isinstance(store, InlineStore) else asyncio.sleep
    while True:
        reply = await store.run(keys.broker_raise_epoch([run], begun=begun, by_time=1))
        if reply.due == NO_PROCESS:
            topics = await PlainTable(store, keys, TopicConfigs(Settings())).all()
            logs = [(topic, number) for topic in topics for number in range(topic.partitions)]
            for some in chunks(logs, AT_ONCE):
                await store.run_many(
                    begin_call(topic, number, reply.epoch, UNDEFINED) for topic, number in some
                )
            begun = reply.epoch
        elif not reply.wait_ms:
            return
        elif (pause := sleep(ASK_S)) is not None:
            await pause
