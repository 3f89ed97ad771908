"""Register a broker in ZooKeeper, where high-level clients of Kafka 0.7 and 0.8 find brokers.

    0.7  /brokers/ids/<node id>             ephemeral   creator:host:port
         /brokers/topics/<topic>/<node id>  ephemeral   the number of partitions
    0.8  /brokers/ids/<node id>             ephemeral   JSON: host, port
         /brokers/topics/<topic>            ephemeral   JSON: the partitions and where they are

Rules
- Every CHECK_S, and when a topic or the session changes, compare the nodes with the wanted ones and
  correct them. That covers an expired session, a restart of ZooKeeper and deleted nodes alike.
- A node of this broker's earlier process (same host and port, another session) disappears with its
  session: wait for that. A node of another broker is an error: two brokers have one id.
- All brokers on one Redis serve the same partitions, so only one of them lists the topics: a
  consumer would otherwise read everything once per broker. It holds a lease in Redis, and renews it
  only while it is connected to ZooKeeper, so that another broker can take over.
- kazoo works with threads: calls that wait run in a worker thread.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from korvet.base import logfmt
from korvet.broker.background.runner import Leases
from korvet.config.broker_config import Address
from korvet.config.setting import StartError
from korvet.log.layouts import BYTES, layout_of
from korvet.scripts.keys import Keys
from korvet.store.errors import StoreError
from korvet.store.notifications import Notifier
from korvet.topics.table import Topic, TopicTable

if TYPE_CHECKING:
    from kazoo.client import KazooClient

CHECK_S = 2.0
LEASE_S = 10.0
SESSION_S = 6.0
CONNECT_S = 5.0
RENEW_S = 10.0
IDS, TOPICS = "/brokers/ids", "/brokers/topics"

log = logfmt.get("legacy.zookeeper")


class Taken(Exception):
    """The path belongs to another broker; the message is its value."""


@dataclass(eq=False, repr=False)
class Registry:
    """The registration of this broker. `open`, then `run` until cancelled, then `close`."""

    option: ClassVar = "--zookeeper"
    lease: ClassVar = "legacy-registry"

    hosts: str
    node_id: int
    where: Address
    keys: Keys
    topics: TopicTable
    notifier: Notifier
    leases: Leases

    def __post_init__(self) -> None:
        # kazoo requires an existing chroot; ours is created with the first node.
        self._hosts, slash, chroot = self.hosts.partition("/")
        root = slash + chroot.strip("/") if chroot.strip("/") else ""
        self._ids, self._topics_path = root + IDS, root + TOPICS
        self._id = str(self.node_id)
        self._creator = f"{self.where.host}-{int(time.time() * 1000)}"
        self._client: KazooClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: Callable[[], None] = lambda: None  # until `run` begins
        self._listed: set[str] = set()
        self._earlier_sessions: set[int] = set()
        self._logged = ""

    # The nodes of 0.7; those of 0.8 have another form.

    def _own(self) -> str:
        """Return the value of this broker's node."""
        return f"{self._creator}:{self.where.host}:{self.where.port}"

    def _is_own(self, text: str) -> bool:
        """Return whether a broker's node has this broker's address."""
        return text.endswith(f":{self.where.host}:{self.where.port}")

    def _listing(self, topic: str) -> str:
        """Return the path of a topic's node."""
        return f"{self._topics_path}/{topic}/{self._id}"

    def _entry(self, topic: Topic) -> str | None:
        """Return the value of a topic's node; None for a topic that is not listed."""
        return str(topic.partitions) if layout_of(topic) is BYTES else None

    async def open(self) -> None:
        """Register the broker, or let `run` do it if ZooKeeper is unreachable.

        Raises StartError if another broker has the id, or kazoo is not installed.
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
            raise StartError(f"{self.option} needs kazoo: install korvet[zookeeper].")
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            self._client = self._new_client()
        except ValueError as error:
            raise StartError(f"{self.option} {self._hosts}: {error}.") from None
        try:
            self._client.start(timeout=CONNECT_S)
        except KazooTimeoutError:
            log.warning("ZooKeeper unreachable, retrying", hosts=self._hosts)
            self._renew()
            return
        self._put_broker()

    def _new_client(self) -> "KazooClient":
        from kazoo.client import KazooClient

        quiet = logging.getLogger("korvet.legacy.kazoo")
        quiet.setLevel(logging.CRITICAL)  # this module logs what matters, once
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
        """Wake `run`, from kazoo's threads. Returning True would remove the listener."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _renew(self) -> None:
        """Replace the client: a ZooKeeper that lost its data refuses clients of before."""
        old, self._client = self._client, self._new_client()
        self._client.start_async()
        if old is not None:
            old.stop()
            old.close()

    async def run(self) -> None:
        """Keep the registration current until cancelled."""
        self._loop = asyncio.get_running_loop()
        connected = time.monotonic()
        async with self.notifier.listen([self.keys.topics_channel()]) as subscription:
            self._wake = subscription.notify
            while True:
                try:
                    assert self._client is not None
                    if self._client.connected:
                        connected = time.monotonic()
                        await asyncio.to_thread(self._put_broker)
                        await asyncio.to_thread(self._put_topics, await self._wanted_topics())
                    elif time.monotonic() - connected > RENEW_S:
                        connected = time.monotonic()
                        await asyncio.to_thread(self._renew)
                    self._logged = ""
                except Exception as error:
                    self._log_failure(error)
                await subscription.wait(CHECK_S)

    def _log_failure(self, error: Exception) -> None:
        """Log a failure once, until it changes."""
        kind = type(error).__name__
        reason = self._taken(error) if isinstance(error, Taken) else f"{kind} {error}"
        if reason != self._logged:
            self._logged = reason
            log.warning("ZooKeeper registration failed", reason=reason)

    async def _wanted_topics(self) -> Mapping[str, str]:
        """Return each topic's node value, if this broker is the one that lists topics."""
        if not await self.leases.hold(self.lease, LEASE_S):
            return {}
        found = {topic.name: self._entry(topic) for topic in await self.topics.all()}
        return {name: entry for name, entry in found.items() if entry is not None}

    def _put_broker(self) -> None:
        """Create this broker's node. Raises Taken if it belongs to another broker."""
        self._put(f"{self._ids}/{self._id}", self._own())

    def _put_topics(self, wanted: Mapping[str, str]) -> None:
        """Create the wanted nodes of topics, and delete the others of this broker."""
        for topic, entry in wanted.items():
            self._put(self._listing(topic), entry)
            self._listed.add(topic)
        for topic in self._listed - wanted.keys():
            self._remove(self._listing(topic))
            self._listed.discard(topic)

    def _put(self, path: str, value: str) -> None:
        """Create or update an ephemeral node. Raises Taken if it is another broker's."""
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
        # An earlier session of this broker: ZooKeeper deletes the node when it expires.
        if stat.ephemeralOwner not in self._earlier_sessions:
            self._earlier_sessions.add(stat.ephemeralOwner)
            log.info("earlier session still registered, waiting for it to expire", path=path)

    def _remove(self, path: str) -> None:
        from kazoo.exceptions import NoNodeError

        client: Any = self._client
        with suppress(NoNodeError):
            _, stat = client.get(path)
            if stat.ephemeralOwner == client.client_id[0]:
                client.delete(path)
                log.info("unregistered", path=path)

    async def close(self) -> None:
        """Remove this broker's nodes, and release the lease."""
        if self._client is not None:
            await asyncio.to_thread(self._stop)
        try:
            await self.leases.release(self.lease)
        except StoreError:
            log.info("lease not released, it expires: Redis is unreachable")

    def _stop(self) -> None:
        assert self._client is not None
        self._client.stop()
        self._client.close()
