"""The service of share groups: the parts of ShareFetch and ShareAcknowledge in one broker."""

from collections.abc import Callable
from dataclasses import dataclass

from korvet.admin.auto_create import TopicAutoCreator
from korvet.config.dynamic import ConfigTable
from korvet.config.values import Settings
from korvet.fetch.response_memory import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.log.reader import LogReader
from korvet.produce.service import ProduceService
from korvet.scripts.keys import Keys
from korvet.share.acknowledger import Acknowledger
from korvet.share.acquirer import Acquirer
from korvet.share.dead_letters import DeadLetters
from korvet.share.sessions import ShareSession, ShareSessions
from korvet.store.async_store import AsyncStore
from korvet.topics.table import TopicTable


@dataclass(eq=False, repr=False)
class ShareService:
    """Acquires and acknowledges records for members of share groups, in sessions."""

    store: AsyncStore
    keys: Keys
    topics: TopicTable
    settings: Callable[[], Settings]
    configs: ConfigTable
    log_reader: LogReader
    produce: ProduceService
    auto_creator: TopicAutoCreator
    memory: ResponseMemory

    def __post_init__(self) -> None:
        letters = DeadLetters(
            self.store,
            self.keys,
            self.topics,
            self.log_reader,
            self.produce,
            self.auto_creator,
            self.settings,
        )
        self.dead_letters = letters
        self.acquirer = Acquirer(
            self.store, self.keys, self.topics, self.log_reader, self.settings, letters, self.memory
        )
        self.acknowledger = Acknowledger(self.store, self.topics, self.acquirer, letters)
        self.sessions = ShareSessions(
            lambda: self.settings().integer("group.share.max.share.sessions"), self._release
        )

    def config(self, group_id: str) -> ShareGroupConfig:
        """Return the configs of a share group in effect."""
        return share_group_config(self.configs, self.settings(), group_id)

    async def finish(self) -> None:
        """Release the records of ended sessions, and copy the dead letters in progress."""
        await self.sessions.finish()
        await self.dead_letters.finish()

    async def _release(self, session: ShareSession) -> None:
        await self.acknowledger.release(session, self.config(session.group))
