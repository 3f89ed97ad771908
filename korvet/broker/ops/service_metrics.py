"""Metrics that read the services when they are scraped, and a count of calls to Redis."""

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily

from korvet.base.metrics import Family, Metrics, Sample
from korvet.config.values import Settings
from korvet.fetch.partition_reader import ResponseMemory
from korvet.fetch.sessions import FetchSessions
from korvet.log.read_cache import ReadCache
from korvet.remote_log.memory import MemoryBudget
from korvet.store.async_store import AsyncStore
from korvet.topics.table import TopicTable

_collector = ProcessCollector(registry=CollectorRegistry())


def process_families() -> list[Family]:
    """Return the process metrics; there are none where the system has no /proc."""
    found = []
    for metric in _collector.collect():
        kind: Literal["counter", "gauge"] = (
            "counter" if isinstance(metric, CounterMetricFamily) else "gauge"
        )
        samples = [Sample((), sample.value) for sample in metric.samples]
        found.append(Family(metric.name, kind, metric.documentation, (), samples))
    return found


def show_services(
    metrics: Metrics,
    store: AsyncStore,
    topics: TopicTable,
    cache: ReadCache,
    responses: ResponseMemory,
    sessions: FetchSessions,
    memory: MemoryBudget,
    settings: Callable[[], Settings],
) -> None:
    """Let the metrics read the numbers of the services at scrape time."""
    metrics.redis_round_trips.ask = lambda: store.round_trips
    metrics.redis_up.ask = lambda: {(): int(store.connected)}
    metrics.pending_bytes.ask = lambda: {(): store.pending_bytes}
    metrics.strays.ask = lambda: cache.skipped_entries
    metrics.cache_hits.ask = lambda: cache.hits
    metrics.cache_misses.ask = lambda: cache.misses
    metrics.cache_bytes.ask = lambda: {(): cache.held_bytes}
    metrics.response_bytes.ask = lambda: {(): responses.bytes}
    metrics.fetch_sessions.ask = lambda: {(): len(sessions)}
    metrics.fetch_session_partitions.ask = lambda: {(): sessions.partitions}
    metrics.memory_level.ask = lambda: {(): memory.level}
    metrics.refused_topics.ask = lambda: {(): len(memory.refused_names)}
    metrics.traffic.max_topics = lambda: settings().integer("monitoring.max.topics")

    def keep_topics() -> None:
        """Drop the counts of deleted topics, once the topic table is read."""
        if topics.cached_version:
            metrics.traffic.keep({topic.name for topic in topics})

    metrics.before_snapshot.append(keep_topics)


def call_counter(metrics: Metrics) -> Callable[[str, float, str], None]:
    """Return a function that counts a call to Redis by name, seconds and outcome."""
    calls, seconds = metrics.redis_calls, metrics.script_seconds

    def count(name: str, took: float, outcome: str) -> None:
        calls.add()
        seconds.of(name).observe(took)
        if outcome != "ok":
            metrics.script_errors.add(1, name, outcome)

    return count
