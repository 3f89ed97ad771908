"""The services that all pages of the console share."""

import asyncio
from time import monotonic

from korvet.broker.ops import checks
from korvet.broker.ops.finding import Finding, worst_first
from korvet.broker.ops.http import HostNames
from korvet.cluster.registration import LiveBroker
from korvet.config.broker_config import Config
from korvet.console.avro import ConsoleAvro
from korvet.console.consumers import Consumers
from korvet.console.inbox import BrokerPages
from korvet.console.sessions import Sessions
from korvet.context import Services
from korvet.library.async_korvet import AsyncKorvet
from korvet.remote_log.manifest import CLUSTER_ID
from korvet.store.errors import StoreError
from korvet.store.sync_store import SyncStore

REFRESH_S = 0.5
"""Max age of settings and ACL rules at the start of a request, seconds."""
CHECK_S = 15.0
"""Max age of the checks of Redis, seconds."""
CHECK_FACTOR = 20
"""Least age of the checks at which they are repeated, in durations of the last ones."""
CHECK_WAIT_S = 1.0
"""Max seconds that a page waits for the checks; then it shows the last ones."""


class ConsoleLog(AsyncKorvet):
    """The library's log, over the settings, topics and remote store of the console's services."""

    def __init__(self, services: Services) -> None:
        config, store = services.config, services.store
        super().__init__(namespace=config.namespace, settings=config.settings, store=store)
        self._dynamic_config = services.dynamic_config
        # This table follows the channel of the topics; the library's may be 1 s old.
        self.topic_table = services.topics
        self.reader.remote = services.log_reader.remote
        self.notifier = services.notifier
        self.dynamic_configs = services.dynamic_config.table

    async def refresh(self) -> None:
        """Use the settings that the console has read."""
        self.settings = self._dynamic_config.settings
        self.topic_configs = self._dynamic_config.topic_configs


class ConsoleServices:
    """The console's own instance of the broker's services."""

    def __init__(self, services: Services, pages: BrokerPages) -> None:
        config = services.config
        self.services = services
        self.pages = pages
        self.log = ConsoleLog(services)
        self.avro = ConsoleAvro(config.settings)
        self.is_secured = is_secured(config)
        self.hosts = HostNames(config)
        self.sessions = Sessions()
        self.passwords = services.mechanisms.passwords
        self.consumers = Consumers()
        self.tails = 0
        """Open responses of events."""
        self.is_closing = False
        self._fresh_until = 0.0
        self._findings: list[Finding] | None = None
        self._checked_until = 0.0
        self._checking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what the broker has stored: the cluster's id, settings, rules. Raises StoreError."""
        # The names of segments begin with it.
        self.services.registration.cluster_id = await self.cluster_id()
        await self.refresh()

    async def refresh(self) -> None:
        """Read settings and ACL rules that changed, unless they are fresh. Raises StoreError."""
        if monotonic() < self._fresh_until:
            return
        await self.services.dynamic_config.refresh()
        await self.services.authorizer.refresh()
        self._fresh_until = monotonic() + REFRESH_S

    def invalidate(self) -> None:
        """Read the topics again: one was changed."""
        self.services.topics.invalidate()

    async def cluster_id(self) -> str:
        found = await self.services.store.command("HGET", self.services.keys.cluster(), CLUSTER_ID)
        return found.decode() if found else ""

    async def brokers(self) -> tuple[list[LiveBroker], int]:
        """Return the live brokers, and the controller's node id."""
        return await self.services.registration.read()

    async def findings(self) -> list[Finding] | None:
        """Return the results of the checks, the worst first; None while the first ones run.

        They run in a thread.
        """
        if self._checking is None and monotonic() >= self._checked_until:
            self._checking = asyncio.create_task(self._check_all())
        checking = self._checking
        if checking is not None:
            await asyncio.wait([checking], timeout=CHECK_WAIT_S)
            if checking.done():
                checking.result()
        return self._findings

    async def _check_all(self) -> None:
        began = monotonic()
        try:
            self._findings = await asyncio.to_thread(self._check)
        finally:
            took = monotonic() - began
            self._checked_until = monotonic() + max(CHECK_S, CHECK_FACTOR * took)
            self._checking = None

    def _check(self) -> list[Finding]:
        config = self.services.config
        assert config.redis is not None
        try:
            with SyncStore.connect(config.redis) as store:
                return worst_first(checks.examine(store, config.namespace))
        except StoreError as error:
            return [Finding("bad", "redis", str(error))]


def is_secured(config: Config) -> bool:
    """Return whether clients have to authenticate: then the console requires a sign-in."""
    return bool(config.settings.text("authorizer.class.name")) or any(
        each.sasl
        or (each.tls and config.settings.of_listener(each.name).text("ssl.client.auth") != "none")
        for each in config.listeners
    )
