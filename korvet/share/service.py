"""The service of share groups: the parts of ShareFetch and ShareAcknowledge in one broker."""

from dataclasses import dataclass

from korvet.admin.auto_create import TopicAutoCreator
from korvet.base.errors import ErrorCode
from korvet.config.dynamic import ConfigTable
from korvet.fetch.response_memory import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.log.reader import LogReader
from korvet.produce.service import ProduceService
from korvet.share.acknowledger import Acknowledger
from korvet.share.acquirer import Acquirer
from korvet.share.dead_letters import DeadLetters
from korvet.share.sessions import ShareSession, ShareSessions
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_BY_NAME = 9
"""The version of Produce: the newest ones name topics by id."""


@dataclass(eq=False, repr=False)
class ShareService:
    """Acquires and acknowledges records for members of share groups, in sessions."""

    node: Node
    configs: ConfigTable
    log_reader: LogReader
    produce: ProduceService
    auto_creator: TopicAutoCreator
    memory: ResponseMemory

    def __post_init__(self) -> None:
        letters = DeadLetters(self.node, self.log_reader, self._append, self.auto_creator.create)
        self.dead_letters = letters
        self.acquirer = Acquirer(self.node, self.log_reader, letters, self.memory)
        self.acknowledger = Acknowledger(self.node.store, self.node.topics, self.acquirer, letters)
        self.sessions = ShareSessions(
            lambda: self.node.settings().integer("group.share.max.share.sessions"), self._release
        )

    def config(self, group_id: str) -> ShareGroupConfig:
        """Return the configs of a share group in effect."""
        return share_group_config(self.configs, self.node.settings(), group_id)

    async def _append(self, topic: Topic, partition: int, batch: bytes) -> ErrorCode:
        row = PartitionProduceData(index=partition, records=batch)
        data = TopicProduceData(name=topic.name, partition_data=[row])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        response = await self.produce.produce(request, _BY_NAME, lambda: None, lambda name: False)
        assert response is not None
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def finish(self) -> None:
        """Release the records of ended sessions, and copy the dead letters in progress."""
        await self.sessions.finish()
        await self.dead_letters.finish()

    async def _release(self, session: ShareSession) -> None:
        await self.acknowledger.release(session, self.config(session.group))
