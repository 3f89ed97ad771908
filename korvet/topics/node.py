"""The node: the parameters that most services of a process have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from korvet.base.metrics import Metrics
from korvet.config.values import Settings
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import TopicTable


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """Redis, the names of its keys, the topics, the settings in effect, and the metrics."""

    store: AsyncStore
    keys: Keys
    topics: TopicTable
    settings: Callable[[], Settings]
    metrics: Metrics
