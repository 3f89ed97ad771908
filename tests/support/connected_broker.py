"""A broker without a socket: requests and answers pass through the codec of their version."""

import itertools
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from korvet import apis
from korvet.base.deferred import CloseWithoutResponse
from korvet.broker.server import connected
from korvet.cluster.registration import Endpoint
from korvet.cluster.registration import LiveBroker as Member
from korvet.config.broker_config import load
from korvet.context import Context, Services
from korvet.security.session import Session
from korvet.topics.lifecycle import create_topic, delete_topic
from korvet.topics.table import Topic
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.schema import Message, decode, encode
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()


class Broker:
    """The services of one broker process, and requests to them."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def ask(
        self,
        request: Message,
        version: int | None = None,
        *,
        listener: str = "PLAINTEXT",
        session: Session | None = None,
    ) -> Any:
        """Return the response to a request, by default in the API's highest version.

        None if there is no response, or if the broker would close the connection instead.
        `session`: that of a connection which sends several requests."""
        row = apis.BY_KEY[request.__message__.key]
        if version is None:
            version = row.versions[1]
        sent = decode(type(request), encode(request, version), version)
        session = session or Session("127.0.0.1", listener=listener)
        context = Context(self.services, row.key, version, "test", session)
        try:
            answer = await row.handler(sent, context)
        except CloseWithoutResponse:
            return None
        if answer is None:
            return None
        return decode(row.response, encode(answer, version), version)

    async def create(self, name: str = "t", partitions: int = 2, **configs: str) -> None:
        """Create a topic; names of configs have underscores for dots."""
        wanted = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=wanted,
        )
        answer = await self.ask(CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def made_again(self, name: str = "t") -> Topic:
        """Recreate the topic as another broker does; return what pending requests still use."""
        old = await self.services.topics.get(name)
        assert old is not None
        await delete_topic(self.services.store, self.services.keys, old)
        again = old.definition(id=uuid4().hex)
        await create_topic(self.services.store, self.services.keys, name, again)
        return old

    async def kept(self, *keys: str) -> list[tuple[str, bytes | None]]:
        """Return the keys as a replica has them that gets no later writes."""
        return [(key, await self.services.store.command("DUMP", key)) for key in keys]

    async def fails_over(self, replica: list[tuple[str, bytes | None]]) -> None:
        """Replace the keys by those of the replica, and open new connections."""
        store = self.services.store
        for key, dumped in replica:
            await store.command("UNLINK", key)
            if dumped is not None:
                await store.command("RESTORE", key, 0, dumped)
        for lane in store._router.connections():
            lane.renew("the server is gone")
        await store.ready()

    async def second(self, host: str = "other") -> "Broker":
        """Register another broker of the same cluster, as node 8."""
        other = Member(8, (Endpoint("PLAINTEXT", host, 9092),))
        mine, self.services.registration.me = self.services.registration.me, other
        await self.services.registration.heartbeat()
        self.services.registration.me = mine
        await self.services.registration.heartbeat()
        return self


@pytest.fixture
async def broker(valkey_server: TestServer) -> AsyncIterator[Broker]:
    """Node 7 on an empty namespace of a real server."""
    namespace = f"h{next(_namespaces)}"
    options = {"redis": valkey_server.url, "namespace": namespace, "node-id": "7"}
    sets = ["group.initial.rebalance.delay.ms=0"]
    config = load({**options, "advertise": "me:9092"}, sets=sets, environ={})
    async with connected(config) as services:
        # This broker has begun no epoch: topics begin with its one.
        await services.store.command("HSET", services.keys.cluster(), "epoch", 0)
        await services.registration.heartbeat()
        await services.topics.refresh()
        yield Broker(services)
