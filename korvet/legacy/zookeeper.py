"""Kafka 0.7's registry in ZooKeeper: where its producers and consumers find brokers and topics.

    /brokers/ids/<node id>             ephemeral   creator:host:port
    /brokers/topics/<topic>/<node id>  ephemeral   the number of partitions

Rules
- What should be there is computed and compared with what is, again and again and whenever a topic
  changes or the session does: an expired session, a ZooKeeper that restarts, or nodes somebody
  removed are all the same case.
- A node of an earlier life of this broker (same host and port, another session) goes when its
  session does, and is waited for. One of another broker is a refusal: two brokers have one id.
- All brokers on one Redis serve the same partitions, so only one of them lists the topics: else a
  consumer would read everything once a broker. It holds a lease in Redis.
- kazoo works with threads; every call that waits is made in one of our own.
"""

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from korvet import logs
from korvet.config import Address
from korvet.context import Node
from korvet.scripts import broker
from korvet.settings.setting import StartError
from korvet.store.errors import StoreError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

LOOK_S = 2.0
LEASE_MS = 10_000
SESSION_S = 6.0
CONNECT_S = 5.0
RENEW_S = 10.0
IDS, TOPICS = "/brokers/ids", "/brokers/topics"

log = logs.get("legacy.zookeeper")


def _nobody() -> None:
    """Nobody waits for the session to change."""


class Taken(Exception):
    """The path belongs to another broker; the message is its value."""


class Registry:
    """This broker in ZooKeeper. `open`, then `run` until cancelled, then `close`."""

    def __init__(self, hosts: str, node: Node, where: Address) -> None:
        # kazoo's own chroot has to exist; ours comes to be with the first node.
        self._hosts, slash, chroot = hosts.partition("/")
        root = slash + chroot.strip("/") if chroot.strip("/") else ""
        self._ids, self._topics = root + IDS, root + TOPICS
        self._node = node
        self._id = str(node.config.node_id)
        self._place = f"{where.host}:{where.port}"
        self._creator = f"{where.host}-{int(time.time() * 1000)}"
        self._holder = f"{self._id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._client: KazooClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ring: Callable[[], None] = _nobody
        self._listed: set[str] = set()
        self._outlived: set[int] = set()
        self._said = ""

    async def open(self) -> None:
        """The broker is registered, or will be as soon as its earlier life or ZooKeeper allows.

        StartError when another broker has the id, or kazoo is not installed.
        """
        try:
            await asyncio.to_thread(self._connect)
        except Taken as taken:
            raise StartError(self._taken(taken)) from None

    def _taken(self, taken: Taken) -> str:
        return (
            f"--zookeeper: {self._ids}/{self._id} belongs to another broker, {taken}: "
            "give this one another --node-id."
        )

    def _connect(self) -> None:
        from importlib.util import find_spec

        if find_spec("kazoo") is None:
            raise StartError("--zookeeper needs kazoo: pip install 'korvet[zookeeper]'.")
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            self._client = self._new_client()
        except ValueError as error:
            raise StartError(f"--zookeeper {self._hosts}: {error}.") from None
        try:
            self._client.start(timeout=CONNECT_S)
        except KazooTimeoutError:
            log.warning("ZooKeeper does not answer; trying on", hosts=self._hosts)
            self._renew()
            return
        self._put(f"{self._ids}/{self._id}", f"{self._creator}:{self._place}")

    def _new_client(self) -> "KazooClient":
        from kazoo.client import KazooClient

        quiet = logging.getLogger("korvet.legacy.kazoo")
        quiet.setLevel(logging.CRITICAL)  # we say what matters, and once
        client = KazooClient(
            hosts=self._hosts,
            timeout=SESSION_S,
            logger=quiet,
            connection_retry={"max_tries": -1, "max_delay": 2.0},
            command_retry={"max_tries": 1},
        )
        client.add_listener(self._changed)
        return client

    def _changed(self, _: object) -> None:
        """Called from kazoo's threads, and must not answer True: that would end the listening."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ring)

    def _renew(self) -> None:
        """Another client tries: a ZooKeeper that lost its data refuses those who saw more."""
        old, self._client = self._client, self._new_client()
        self._client.start_async()
        if old is not None:
            old.stop()
            old.close()

    async def run(self) -> None:
        """The registry is as the topics are, until cancelled."""
        node = self._node
        self._loop = asyncio.get_running_loop()
        connected = time.monotonic()
        async with node.wake.listen([node.keys.topics_channel()]) as bell:
            self._ring = bell.ring
            while True:
                try:
                    assert self._client is not None
                    wanted = await self._wanted()
                    if self._client.connected:
                        connected = time.monotonic()
                        await asyncio.to_thread(self._settle, wanted)
                    elif time.monotonic() - connected > RENEW_S:
                        connected = time.monotonic()
                        await asyncio.to_thread(self._renew)
                    self._said = ""
                except Exception as error:
                    self._complain(error)
                await bell.wait(LOOK_S)

    def _complain(self, error: Exception) -> None:
        """One line for a trouble, however long it lasts."""
        said = self._taken(error) if isinstance(error, Taken) else f"{type(error).__name__} {error}"
        if said != self._said:
            self._said = said
            log.warning("not registered in ZooKeeper", reason=said)

    async def _wanted(self) -> Mapping[str, str]:
        """Topic -> number of partitions, if it is this broker that lists them."""
        node = self._node
        held = await node.store.run(
            broker.lease(node.keys, name="legacy-registry", holder=self._holder, ttl_ms=LEASE_MS)
        )
        if not held.held:
            return {}
        return {
            topic.name: str(topic.partitions) for topic in await node.topics.all() if topic.is_bytes
        }

    def _settle(self, wanted: Mapping[str, str]) -> None:
        """What ZooKeeper has of this broker is what is wanted."""
        self._put(f"{self._ids}/{self._id}", f"{self._creator}:{self._place}")
        for topic, partitions in wanted.items():
            self._put(f"{self._topics}/{topic}/{self._id}", partitions)
            self._listed.add(topic)
        for topic in self._listed - wanted.keys():
            self._remove(f"{self._topics}/{topic}/{self._id}")
            self._listed.discard(topic)

    def _put(self, path: str, value: str) -> None:
        """The ephemeral node is ours and says that. Raises Taken for another broker's."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        client: Any = self._client
        session = client.client_id[0]
        try:
            data, stat = client.get(path)
        except NoNodeError:
            try:
                client.create(path, value.encode(), ephemeral=True, makepath=True)
                log.info("registered", path=path, value=value)
            except NodeExistsError:
                self._put(path, value)
            return
        if stat.ephemeralOwner == session:
            if data != value.encode():
                client.set(path, value.encode())
            return
        if path.startswith(self._ids) and not data.decode(errors="replace").endswith(self._place):
            raise Taken(data.decode(errors="replace"))
        # An earlier session of this broker: the node goes when ZooKeeper notices its end.
        if stat.ephemeralOwner not in self._outlived:
            self._outlived.add(stat.ephemeralOwner)
            log.info("an earlier life is still registered; waiting for its end", path=path)

    def _remove(self, path: str) -> None:
        from kazoo.exceptions import NoNodeError

        client: Any = self._client
        try:
            _, stat = client.get(path)
            if stat.ephemeralOwner == client.client_id[0]:
                client.delete(path)
                log.info("no longer registered", path=path)
        except NoNodeError:
            return

    async def close(self) -> None:
        """Nothing of this broker is left in ZooKeeper."""
        if self._client is not None:
            await asyncio.to_thread(self._stop)
        try:
            await self._node.store.run(
                broker.lease(self._node.keys, name="legacy-registry", holder=self._holder, ttl_ms=1)
            )
        except StoreError:
            log.info("the lease runs out by itself: Redis is away")

    def _stop(self) -> None:
        assert self._client is not None
        self._client.stop()
        self._client.close()
