"""The metrics of a broker process: cheap to count, rendered as Prometheus text elsewhere.

Rules
- Counting is a dictionary or list update: no locks (one event loop), no label objects, no imports.
- Label values come from Korvet's own tables (api, error, script), never from clients, so they are
  few. Values that grow with clients' names are rows read at scrape time, bounded by a setting.
- `snapshot()` is plain data, so that worker processes can pass theirs to the scraped one.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic

from korvet.base.metrics.families import (
    AGES_S,
    BYTES_IN,
    BYTES_OUT,
    RECORDS_IN,
    RECORDS_OUT,
    Counter,
    Family,
    Gauge,
    Histogram,
    Labels,
    Sample,
    Series,
    TopicTraffic,
)

__all__ = ["Counter", "Family", "Gauge", "Histogram", "Labels", "Metrics", "Sample", "Series"]

SCRAPE_S = 60.0
"""Seconds after a scrape within which this process collects what only a scrape shows."""


class Metrics:
    """All metrics of one broker process."""

    def __init__(self) -> None:
        self.traffic = TopicTraffic()
        self.before_snapshot: list[Callable[[], None]] = []
        self._scraped_at = -SCRAPE_S
        # fmt: off
        self.requests = Counter("korvet_requests",
            "Requests answered, by API and first error.", "api", "error")
        self.request_seconds = Histogram("korvet_request_seconds",
            "From a whole request read to its reply queued.", "api")
        self.script_seconds = Histogram("korvet_script_seconds",
            "From a script call sent to its reply read.", "script")
        self.fetch_work_seconds = Histogram("korvet_fetch_work_seconds",
            "Fetch requests without their wait for min_bytes.")
        self.fetch_age_seconds = Histogram("korvet_fetch_record_age_seconds",
            "From the timestamp of the first batch of a partition's response to "
            "its delivery.", bounds=AGES_S)
        self.script_errors = Counter("korvet_script_errors",
            "Script calls and commands that failed, or got no reply.", "script", "outcome")
        self.received_bytes = Counter("korvet_received_bytes", "Bytes read from clients.")
        self.sent_bytes = Counter("korvet_sent_bytes", "Bytes written to clients.")
        self.records_in = Counter("korvet_produced_records", "Records appended.")
        self.records_out = Counter("korvet_fetched_records", "Records sent to consumers.")
        self.record_bytes_in = Counter("korvet_produced_bytes", "Bytes of batches appended.")
        self.record_bytes_out = Counter("korvet_fetched_bytes", "Bytes of batches sent.")
        self.topic_records_in = Counter("korvet_topic_produced_records",
            "Records appended, by topic.", "topic")
        self.topic_records_out = Counter("korvet_topic_fetched_records",
            "Records sent to consumers, by topic.", "topic")
        self.topic_bytes_in = Counter("korvet_topic_produced_bytes",
            "Bytes of batches appended, by topic.", "topic")
        self.topic_bytes_out = Counter("korvet_topic_fetched_bytes",
            "Bytes of batches sent, by topic.", "topic")
        self.topics_not_shown = Gauge("korvet_topics_not_shown",
            "Topics with traffic that have no korvet_topic rows (monitoring.max.topics).")
        self._ask_traffic()
        self.connections = Gauge("korvet_connections", "Client connections open now.")
        self.connections_opened = Counter("korvet_connections_opened", "Client connections taken.")
        self.authentications = Counter("korvet_authentications",
            "SASL authentications of clients, by mechanism and outcome.", "mechanism", "outcome")
        self.audit_events = Counter("korvet_audit_events",
            "Events for the audit topic, by outcome.", "outcome")
        self.refused = Counter("korvet_connections_refused",
            "Connections that the broker ended, by reason.", "reason")
        self.stalls = Counter("korvet_stalls",
            "Times this process did not run for connections.max.stall.ms, and closed its "
            "connections.")
        self.lost_records = Counter("korvet_lost_records",
            "Offsets of acknowledged records that Redis no longer had after a restart or failover.",
            "topic")
        self.late_requests = Counter("korvet_late_requests",
            "Requests dropped because their client had closed the connection meanwhile.")
        self.redis_round_trips = Counter("korvet_redis_round_trips", "Pipelines sent to Redis.")
        self.redis_calls = Counter("korvet_redis_calls", "Commands and script calls sent to Redis.")
        self.redis_up = Gauge("korvet_redis_up", "1 while Redis answers.")
        self.duplicates = Counter("korvet_duplicate_batches", "Batches already stored, dropped.")
        self.strays = Counter("korvet_unreadable_entries",
            "Foreign entries without an offset, or too large, which reads skip.")
        self.expired_records = Counter("korvet_expired_records", "Records removed by retention.")
        self.rebalances = Counter("korvet_rebalances", "Rebalances begun by this broker.")
        self.topics = Gauge("korvet_topics", "Topics (max.topics).")
        self.transactional_ids = Gauge("korvet_transactional_ids",
            "Transactional ids that are kept (transactional.id.expiration.ms).")
        self.groups = Gauge("korvet_groups", "Groups with members or committed offsets.")
        self.groups_not_shown = Gauge("korvet_groups_not_shown",
            "Groups without korvet_group rows: those with the least lag (monitoring.max.groups).")
        self.group_rows_not_shown = Gauge("korvet_group_partitions_not_shown",
            "Rows of korvet_group_lag_records left out, least lag first "
            "(monitoring.max.partitions).")
        self.group_members = Gauge("korvet_group_members", "Members of each group.", "group")
        self.group_lag = Gauge("korvet_group_lag_records",
            "Records not yet committed by a group, or not "
            "finished by a share group.", "group", "topic", "partition")
        self.group_age = Gauge("korvet_group_lag_seconds",
            "Age of the first record not yet committed by a group, or not finished by a share "
            "group; no row if unknown.", "group", "topic", "partition")
        self.share_records = Gauge("korvet_share_group_records",
            "Records of a share group by state: available for delivery, acquired by a member, or "
            "a dead letter that is not copied yet.", "group", "topic", "partition", "state")
        self.share_finished = Counter("korvet_share_group_finished_records",
            "Records that a share group has finished: accepted, or archived because a member "
            "rejected them or they were delivered too "
            "often.", "group", "topic", "partition", "result")
        self.group_update_seconds = Gauge("korvet_group_update_seconds",
            "Duration of the last update of the group metrics.")
        self.cache_hits = Counter("korvet_fetch_cache_hits", "Reads served from recent batches.")
        self.cache_misses = Counter("korvet_fetch_cache_misses",
            "Reads of recent batches that needed Redis.")
        self.cache_bytes = Gauge("korvet_fetch_cache_bytes", "Memory of recent batches.")
        self.pending_bytes = Gauge("korvet_redis_pending_bytes",
            "Bytes sent to Redis and not yet answered.")
        self.response_bytes = Gauge("korvet_fetch_response_bytes",
            "Memory of Fetch responses in progress.")
        self.fetch_sessions = Gauge("korvet_fetch_sessions",
            "Fetch sessions (max.incremental.fetch.session.cache.slots).")
        self.fetch_session_partitions = Gauge("korvet_fetch_session_partitions",
            "Partitions of all fetch sessions.")
        self.fetch_session_evictions = Counter("korvet_fetch_session_evictions",
            "Fetch sessions that others have evicted.")
        self.redis_used_memory = Gauge("korvet_redis_used_memory_bytes",
            "used_memory of each Redis server.", "server")
        self.redis_max_memory = Gauge("korvet_redis_max_memory_bytes",
            "maxmemory of each Redis server, 0: none.", "server")
        self.memory_level = Gauge("korvet_memory_budget_ratio",
            "Used part of local.memory.bytes, 0 without a budget.")
        self.refused_topics = Gauge("korvet_memory_refused_topics",
            "Topics whose batches are refused, as Redis is above local.memory.bytes.")
        self.task_seconds = Histogram("korvet_background_task_seconds",
            "Runs of a background task.", "task")
        self.task_errors = Counter("korvet_background_task_errors",
            "Runs of a background task that failed.", "task")
        self.task_times = Gauge("korvet_background_task_last_success_timestamp_seconds",
            "Time of the last run of a background task without an error.", "task")
        self.remote_request_seconds = Histogram("korvet_remote_request_seconds",
            "Requests to the remote store, failed ones included, by operation.", "operation")
        self.remote_errors = Counter("korvet_remote_errors",
            "Failed requests to the remote store.", "operation")
        self.remote_read_bytes = Counter("korvet_remote_read_bytes",
            "Bytes read from the remote store.")
        self.remote_written_bytes = Counter("korvet_remote_written_bytes",
            "Bytes of segments written to the remote store.")
        self.remote_fetched_bytes = Counter("korvet_remote_fetched_bytes",
            "Bytes of batches that reads took from segments.")
        self.remote_cache_hits = Counter("korvet_remote_cache_hits",
            "Parts of segments found in memory.")
        self.remote_cache_misses = Counter("korvet_remote_cache_misses",
            "Parts of segments read from the remote store.")
        self.chunk_reads = Counter("korvet_chunk_cache_reads",
            "Reads of chunks on disk.", "outcome")
        self.chunk_bytes = Gauge("korvet_chunk_cache_bytes", "Bytes in fetch.chunk.cache.path.")
        self.remote_copy_lag_records = Gauge("korvet_remote_copy_lag_records",
            "Records not yet copied to the remote store, of the partitions "
            "this process copies.", "topic", "partition")
        self.remote_copy_lag_bytes = Gauge("korvet_remote_copy_lag_bytes",
            "Bytes not yet copied to the remote store, of the partitions "
            "this process copies.", "topic", "partition")
        self.held_records = Gauge("korvet_retention_held_records",
            "Records that retention.consumed keeps, by the group "
            "with the lowest commit.", "topic", "partition", "group")

        self.scheduled_appended = Counter("korvet_scheduled_appended_records",
            "Scheduled records appended when they were due.")
        self.scheduled_late_seconds = Histogram("korvet_scheduled_late_seconds",
            "From the due time of the first record of a call of schedule.append_due to its append.")
        self.scheduled_records = Gauge("korvet_scheduled_records",
            "Records that wait until they are due.", "topic")
        self.scheduled_bytes = Gauge("korvet_scheduled_bytes",
            "Bytes of the records that wait until they are due.", "topic")
        self.scheduled_overdue_seconds = Gauge("korvet_scheduled_overdue_seconds",
            "Age of the first due time that has passed, 0 if none has.", "topic")
        # fmt: on

    def _ask_traffic(self) -> None:
        """Read the counts of topics, and their sums, at scrape time."""
        for total, by_topic, count in (
            (self.records_in, self.topic_records_in, RECORDS_IN),
            (self.record_bytes_in, self.topic_bytes_in, BYTES_IN),
            (self.records_out, self.topic_records_out, RECORDS_OUT),
            (self.record_bytes_out, self.topic_bytes_out, BYTES_OUT),
        ):
            total.ask = partial(self.traffic.total, count)
            by_topic.ask_rows = partial(self.traffic.shown, count)
        self.topics_not_shown.ask = lambda: {(): self.traffic.not_shown()}

    def answered(self, api: str, error: str, seconds: float) -> None:
        """Count one answered request."""
        self.requests.values[api, error] += 1
        self.request_seconds.of(api).observe(seconds)

    def appended(self, topic: str, records: int, size: int) -> None:
        """Count one appended batch and its bytes; a duplicate batch has no records."""
        if records:
            row = self.traffic.of(topic)
            row[RECORDS_IN] += records
            row[BYTES_IN] += size
        else:
            self.duplicates.values[()] += 1

    def fetched(self, topic: str, records: int, size: int) -> None:
        """Count the records and bytes of one partition of a response."""
        row = self.traffic.of(topic)
        row[RECORDS_OUT] += records
        row[BYTES_OUT] += size

    def scraped(self) -> None:
        """Note that a scrape asks for the metrics."""
        self._scraped_at = monotonic()

    @property
    def is_scraped(self) -> bool:
        """Return whether a scrape asked within the last SCRAPE_S."""
        return monotonic() - self._scraped_at < SCRAPE_S

    def snapshot(self) -> list[Family]:
        """Return all families as plain data."""
        for prepare in self.before_snapshot:
            prepare()
        return [
            metric.family()
            for metric in vars(self).values()
            if isinstance(metric, Counter | Gauge | Histogram)
        ]
