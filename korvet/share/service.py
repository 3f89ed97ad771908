"""The service of share groups: the parts of ShareFetch and ShareAcknowledge in one broker."""

from collections.abc import Callable

from korvet.admin.auto_create import TopicAutoCreator
from korvet.config.dynamic import ConfigTable
from korvet.config.values import Settings
from korvet.fetch.response_memory import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.keys import Keys
from korvet.log.reader import LogReader
from korvet.produce.service import ProduceService
from korvet.share.acknowledger import Acknowledger
from korvet.share.acquirer import Acquirer
from korvet.share.dead_letters import DeadLetters
from korvet.share.sessions import ShareSession, ShareSessions
from korvet.store.async_store import AsyncStore
from korvet.topics.table import TopicTable


class ShareService:
    """Acquires and acknowledges records for members of share groups, in sessions."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        topics: TopicTable,
        settings: Callable[[], Settings],
        configs: ConfigTable,
        log_reader: LogReader,
        produce: ProduceService,
        auto_creator: TopicAutoCreator,
        memory: ResponseMemory,
    ) -> None:
        self._settings = settings
        self._configs = configs
        letters = DeadLetters(store, keys, topics, log_reader, produce, auto_creator, settings)
        self.dead_letters = letters
        self.acquirer = Acquirer(store, keys, topics, log_reader, settings, letters, memory)
        self.acknowledger = Acknowledger(store, topics, self.acquirer, letters)
        self.sessions = ShareSessions(
            lambda: settings().integer("group.share.max.share.sessions"), self._release
        )

    def config(self, group_id: str) -> ShareGroupConfig:
        """Return the configs of a share group in effect."""
        return share_group_config(self._configs, self._settings(), group_id)

    async def finish(self) -> None:
        """Release the records of ended sessions, and copy the dead letters in progress."""
        await self.sessions.finish()
        await self.dead_letters.finish()

    async def _release(self, session: ShareSession) -> None:
        await self.acknowledger.release(session, self.config(session.group))
