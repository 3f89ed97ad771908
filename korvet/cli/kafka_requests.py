"""Kafka requests of commands, to brokers or to this process, and work on the log in Redis.

Rules
- A command sends the requests that Kafka's own tools send, and prints their responses: its words
  and output are the same in both ways, and --brokers may name an Apache Kafka.
- With --brokers the broker authorizes the user. Without it a request goes to the code that a broker
  runs for it, in this process, with all rights: the command has the Redis.
- A command that Kafka has no request for works on the log in Redis, as the Python library does.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from korvet.base.errors import ErrorCode
from korvet.cli import redis_target
from korvet.cli.kafka_client import CLIENT_ID, ClientSettings, KafkaClient, check
from korvet.cli.profile import Profiles, settings_of
from korvet.cli.target import BROKERS_VARIABLE, Target
from korvet.config.broker_config import Config
from korvet.config.setting import StartError
from korvet.config.values import STORED, with_stored
from korvet.library.async_korvet import AsyncKorvet
from korvet.log.accept_server import accept_by
from korvet.scripts.keys import Keys
from korvet.security.session import ANONYMOUS
from korvet.store.async_store import AsyncStore
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.schema import Message

T = TypeVar("T")
Accept = Callable[[str], Coroutine[Any, Any, None]] | None
GROUP, TRANSACTION = 0, 1
"""The types of coordinators."""
_ATTEMPTS, _PAUSE_S = 150, 0.2
_ALL_RIGHTS = {"authorizer.class.name": "korvet", "super.users": str(ANONYMOUS)}
"""Settings with which requests of this process list and change ACL rules too."""
NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class ThisProcess:
    """The code of a broker, in this process; it is every broker."""

    def __init__(self, services: Any) -> None:
        self._services = services
        self.brokers: list[int] = [services.config.node_id]

    async def call(
        self, request: Message, broker: int | None = None, below: int | None = None
    ) -> Any:
        """Return the response to a request in the highest version, or the highest below one."""
        from korvet.broker.server import answer

        await self._services.authorizer.refresh()
        return await answer(request, self._services, CLIENT_ID, below)

    async def coordinator(self, kind: int, name: str) -> int:
        """Return this broker."""
        return self.brokers[0]


Requests = KafkaClient | ThisProcess
"""The receiver of a command's requests."""


async def leaders(requests: Requests, topic: str) -> dict[int, int]:
    """Return the broker of each partition."""
    found = await find_topic(requests, topic)
    return {row.partition_index: row.leader_id for row in found.partitions}


async def find_topic(requests: Requests, topic: str) -> Any:
    """Return a topic's row of Metadata. Raises StartError if there is no such topic."""
    answer = await requests.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    )
    (found,) = answer.topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise StartError(
            f"There is no topic {topic!r}: `korvet topics list` names them; create it with `korvet "
            f"topics create {topic}`."
        )
    check(found)
    return found


async def ask_coordinator(
    requests: Requests,
    kind: int,
    name: str,
    request: Message,
    code: Callable[[Any], int] = lambda answer: int(answer.error_code),
    *,
    again: Collection[ErrorCode] = NOT_READY,
    below: int | None = None,
) -> Any:
    """Return the response of the coordinator of a group (0) or a transactional id (1).

    A coordinator that is not ready, or still ends a transaction, is asked `again`. `code` finds the
    error in the response; `below` is the first version that is not sent.
    """
    for _ in range(_ATTEMPTS):
        answer = await requests.call(request, await requests.coordinator(kind, name), below)
        if code(answer) not in again:
            break
        await asyncio.sleep(_PAUSE_S)
    return answer


class Via(NamedTuple):
    """The receiver that the options select: brokers, without them the target's Redis."""

    target: Target
    brokers: str | None
    client_config: str | None
    profile: str | None = None

    @property
    def addresses(self) -> str:
        """The brokers that the options or the environment name."""
        if self.brokers is None and not self.target.is_named:
            return os.environ.get(BROKERS_VARIABLE, "")
        return self.brokers or ""

    @property
    def has_brokers(self) -> bool:
        """True if requests go to brokers."""
        return bool(self.addresses or self.client_config or self.has_profile)

    @property
    def has_profile(self) -> bool:
        """True if a profile names the brokers: by --profile, or the one in use."""
        if self.profile is not None:
            return True
        chosen = self.addresses or self.client_config or self.target.is_named or self.target.redis
        return not chosen and Profiles.load().current is not None

    def run(
        self, work: Callable[[Requests], Awaitable[T]], *, node_id: int = 0, create: bool = False
    ) -> T:
        """Run `work` and return its result. Without brokers this process is broker `node_id`.

        With `create` a missing data directory is made.
        """
        if self.has_brokers:
            try:
                return asyncio.run(_by_brokers(work, self._client_settings()))
            except Exception as error:
                if self.brokers is None and self.client_config is None:
                    error.add_note(self._choice())
                raise
        with _redis(self.target, create=create) as (url, accept):
            return asyncio.run(_in_this_process(work, self._config(url, node_id), accept))

    def _client_settings(self) -> ClientSettings:
        if self.has_profile:
            return settings_of(self.profile, self.brokers or "", os.environ)
        return ClientSettings.read(self.addresses, self.client_config, os.environ)

    def _choice(self) -> str:
        """Return where the brokers are named that no option names."""
        if not self.has_profile:
            return f"(the brokers of {BROKERS_VARIABLE}: {self.addresses})"
        name = self.profile or Profiles.load().current
        brokers = Profiles.load().profiles.get(name or "", {}).get("bootstrap.servers", "none")
        return f"(the brokers of profile {name}: {brokers})"

    def _config(self, url: str, node_id: int) -> Config:
        settings = self.target.settings.with_start(_ALL_RIGHTS)
        return Config(
            redis=url, namespace=self.target.namespace, node_id=node_id, settings=settings
        )


async def _by_brokers(work: Callable[[Requests], Awaitable[T]], settings: ClientSettings) -> T:
    async with KafkaClient(settings) as client:
        return await work(client)


async def _in_this_process(
    work: Callable[[Requests], Awaitable[T]], config: Config, accept: Accept
) -> T:
    from korvet.broker.server import connected

    async with connected(config, client=CLIENT_ID, accept_server=accept) as services:
        await services.dynamic_config.refresh()
        # After the services were made: they open no remote store for it.
        stored = await services.store.command("HMGET", services.keys.cluster(), *STORED)
        services.dynamic_config.use_start(with_stored(config.settings, stored))
        return await work(ThisProcess(services))


def on_log(
    work: Callable[[AsyncKorvet], Awaitable[T]], target: Target, *, create: bool = False
) -> T:
    """Run `work` on the log of the target's Redis and return its result.

    With `create` a missing data directory is made.
    """

    async def connected(url: str, accept: Accept) -> T:
        store = await AsyncStore.connect(url, client_name=CLIENT_ID, accept_server=accept)
        log = AsyncKorvet(namespace=target.namespace, settings=target.settings, store=store)
        log.url = url
        async with log:
            return await work(log)

    with _redis(target, create=create) as (url, accept):
        return asyncio.run(connected(url, accept))


@contextmanager
def _redis(target: Target, *, create: bool = False) -> Iterator[tuple[str, Accept]]:
    """Yield the URL of the target's Redis, and what accepts the server there."""
    is_running = redis_target.running(target) is not None
    with redis_target.url(target, create=create) as url:
        connect = partial(AsyncStore.connect, url, client_name=CLIENT_ID)
        # A server that was started for this command has what its files had.
        yield url, accept_by(Keys(target.namespace), connect) if is_running else None
