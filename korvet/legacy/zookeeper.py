"""The registries of Kafka 0.7 and 0.8 in ZooKeeper, where their high-level clients find brokers.

    0.7  /brokers/ids/<node id>             ephemeral   creator:host:port
         /brokers/topics/<topic>/<node id>  ephemeral   the number of partitions
    0.8  /brokers/ids/<node id>             ephemeral   JSON: host, port
         /brokers/topics/<topic>            ephemeral   JSON: the partitions and where they are

Rules
- What should be there is computed and compared with what is, again and again and whenever a topic
  changes or the session does: an expired session, a ZooKeeper that restarts, or nodes somebody
  removed are all the same case.
- A node of an earlier life of this broker (same host and port, another session) goes when its
  session does, and is waited for. One of another broker is a refusal: two brokers have one id.
- All brokers on one Redis serve the same partitions, so only one of them lists the topics: else a
  consumer would read everything once a broker. It holds a lease in Redis, and asks for it only
  while ZooKeeper knows it: who cannot list them keeps no other from it.
- kazoo works with threads; every call that waits is made in one of our own.
"""

import asyncio
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from korvet import logfmt
from korvet.config.broker_config import Address
from korvet.config.setting import StartError
from korvet.context import Services
from korvet.scripts import broker
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

if TYPE_CHECKING:
    from kazoo.client import KazooClient

LOOK_S = 2.0
LEASE_MS = 10_000
SESSION_S = 6.0
CONNECT_S = 5.0
RENEW_S = 10.0
IDS, TOPICS = "/brokers/ids", "/brokers/topics"

log = logfmt.get("legacy.zookeeper")


def _nobody() -> None:
    """Nobody waits for the session to change."""


class Taken(Exception):
    """The path belongs to another broker; the message is its value."""


class Registry:
    """This broker in ZooKeeper. `open`, then `run` until cancelled, then `close`."""

    option = "--zookeeper"
    duty = "legacy-registry"

    def __init__(self, hosts: str, services: Services, where: Address) -> None:
        # kazoo's own chroot has to exist; ours comes to be with the first node.
        self._hosts, slash, chroot = hosts.partition("/")
        root = slash + chroot.strip("/") if chroot.strip("/") else ""
        self._ids, self._topics = root + IDS, root + TOPICS
        self._services = services
        self._id = str(services.config.node_id)
        self._where = where
        self._creator = f"{where.host}-{int(time.time() * 1000)}"
        self._holder = f"{self._id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._client: KazooClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ring: Callable[[], None] = _nobody
        self._listed: set[str] = set()
        self._outlived: set[int] = set()
        self._said = ""

    # What 0.7 reads; 0.8 has another form.

    def _own(self) -> str:
        """This broker."""
        return f"{self._creator}:{self._where.host}:{self._where.port}"

    def _is_own(self, text: str) -> bool:
        """Whether a broker's node says where this one is."""
        return text.endswith(f":{self._where.host}:{self._where.port}")

    def _listing(self, topic: str) -> str:
        """The path of a topic's node."""
        return f"{self._topics}/{topic}/{self._id}"

    def _entry(self, topic: Topic) -> str | None:
        """What it says; None for a topic that is not listed."""
        return str(topic.partitions) if topic.is_bytes else None

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
            f"{self.option}: {self._ids}/{self._id} belongs to another broker, {taken}: "
            "give this one another --node-id."
        )

    def _connect(self) -> None:
        from importlib.util import find_spec

        if find_spec("kazoo") is None:
            raise StartError(f"{self.option} needs kazoo: pip install 'korvet[zookeeper]'.")
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            self._client = self._new_client()
        except ValueError as error:
            raise StartError(f"{self.option} {self._hosts}: {error}.") from None
        try:
            self._client.start(timeout=CONNECT_S)
        except KazooTimeoutError:
            log.warning("ZooKeeper does not answer; trying on", hosts=self._hosts)
            self._renew()
            return
        self._name_itself()

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
        services = self._services
        self._loop = asyncio.get_running_loop()
        connected = time.monotonic()
        async with services.notifier.listen([services.keys.topics_channel()]) as bell:
            self._ring = bell.notify
            while True:
                try:
                    assert self._client is not None
                    if self._client.connected:
                        connected = time.monotonic()
                        await asyncio.to_thread(self._name_itself)
                        await asyncio.to_thread(self._settle, await self._wanted())
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
        """Topic -> what its node says, if it is this broker that lists them."""
        services = self._services
        held = await services.store.run(
            broker.lease(services.keys, name=self.duty, holder=self._holder, ttl_ms=LEASE_MS)
        )
        if not held.held:
            return {}
        found = {topic.name: self._entry(topic) for topic in await services.topics.all()}
        return {name: entry for name, entry in found.items() if entry is not None}

    def _name_itself(self) -> None:
        """ZooKeeper has this broker. Raises Taken where it has another one instead."""
        self._put(f"{self._ids}/{self._id}", self._own())

    def _settle(self, wanted: Mapping[str, str]) -> None:
        """What ZooKeeper has of topics by this broker is what is wanted."""
        for topic, entry in wanted.items():
            self._put(self._listing(topic), entry)
            self._listed.add(topic)
        for topic in self._listed - wanted.keys():
            self._remove(self._listing(topic))
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
        text = data.decode(errors="replace")
        if path.startswith(self._ids) and not self._is_own(text):
            raise Taken(text)
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
            await self._services.store.run(
                broker.lease(self._services.keys, name=self.duty, holder=self._holder, ttl_ms=1)
            )
        except StoreError:
            log.info("the lease runs out by itself: Redis is away")

    def _stop(self) -> None:
        assert self._client is not None
        self._client.stop()
        self._client.close()


class Registry08(Registry):
    """The same for the high-level consumers of 0.8: JSON, the main port, every topic."""

    option = "zookeeper.connect"
    duty = "registry-08"

    def _own(self) -> str:
        said = {
            "jmx_port": -1,
            "timestamp": self._creator.rpartition("-")[2],
            "host": self._where.host,
            "version": 1,
            "port": self._where.port,
        }
        return json.dumps(said)

    def _is_own(self, text: str) -> bool:
        try:
            said = json.loads(text)
            return (said["host"], said["port"]) == (self._where.host, self._where.port)
        except (ValueError, LookupError, TypeError):
            return False

    def _listing(self, topic: str) -> str:
        return f"{self._topics}/{topic}"

    def _entry(self, topic: Topic) -> str | None:
        partitions = {str(number): [int(self._id)] for number in range(topic.partitions)}
        return json.dumps({"version": 1, "partitions": partitions})
