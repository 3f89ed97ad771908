"""Create the internal topics of a streams group: repartition and changelog topics (KIP-1071)."""

from collections.abc import Callable, Mapping, Sequence

from korvet.config.dynamic import DynamicBrokerConfig
from korvet.errors import ErrorCode
from korvet.groups.streams_group import decode_pairs
from korvet.keys import Keys
from korvet.store.calls import AsyncCalls
from korvet.store.errors import StoreError
from korvet.topics.lifecycle import (
    Refused,
    create_topic,
    plan_topic,
    refuse_colliding,
)
from korvet.topics.table import TopicTable

CELLS = 4
"""Cells per topic in the reply of lua/group/streams_heartbeat.lua."""


class InternalTopics:
    """Creates internal topics with the partitions and configs that their topology has."""

    def __init__(
        self, store: AsyncCalls, keys: Keys, topics: TopicTable, config: DynamicBrokerConfig
    ) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._config = config

    async def create(self, missing: Sequence[bytes], may_create: Callable[[str], bool]) -> str:
        """Create the topics that a heartbeat lacks. Returns why some could not be, else nothing."""
        rows = [missing[at : at + CELLS] for at in range(0, len(missing), CELLS)]
        names = [row[0].decode() for row in rows]
        denied = [name for name in names if not may_create(name)]
        if denied:
            return f"Unauthorized to CREATE on topics {', '.join(denied)}."
        failures = []
        for name, (_, partitions, _, configs) in zip(names, rows, strict=True):
            try:
                await self._create(name, int(partitions), dict(decode_pairs(configs)))
            except (Refused, StoreError) as error:
                failures.append(f"{name} ({error})")
        self._topics.invalidate()
        return f"Creation failed: {', '.join(failures)}." if failures else ""

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        refuse_colliding(self._topics.find_colliding(name), name)
        definition = plan_topic(name, partitions, configs, self._config.topic_configs)
        error = await create_topic(self._store, self._keys, name, definition)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Refused(error, error.message)
