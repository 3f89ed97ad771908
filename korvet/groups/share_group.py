"""Share groups (KIP-932): the configs in effect."""

from datetime import UTC, datetime
from functools import lru_cache
from time import time

import msgspec

from korvet.config.dynamic import ConfigTable, group_resource, group_values, select_valid
from korvet.config.group_settings import GROUP
from korvet.config.setting import reset_duration_ms
from korvet.config.values import Settings
from korvet.log.position import EARLIEST, LATEST, Position


class ShareGroupConfig(msgspec.Struct, frozen=True):
    """The configs of one share group in effect."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: str
    """`earliest`, `latest` or `by_duration`."""
    reset_duration_ms: int
    """With `by_duration`: how long before now the group starts."""
    read_committed: bool
    renew_acknowledge_enable: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    ordered_by_key: bool
    """Whether records of one key are delivered one after another."""
    dead_letter_topic: str
    """Empty: the group has no dead letter queue."""
    copies_dead_letters: bool
    """Whether dead letters have the record's key, value and headers."""

    @property
    def has_dead_letters(self) -> bool:
        """Return whether the group has a dead letter queue."""
        return bool(self.dead_letter_topic)

    def start_position(self) -> Position:
        """Return where the group starts in a partition."""
        if self.auto_offset_reset in (EARLIEST, LATEST):
            return self.auto_offset_reset
        return datetime.fromtimestamp(max(0.0, time() - self.reset_duration_ms / 1000), UTC)


def share_group_config(configs: ConfigTable, settings: Settings, group_id: str) -> ShareGroupConfig:
    """Return the configs of the share group in effect. Cheap: an equal result is kept."""
    resource = group_resource(group_id)
    if not configs.raw(resource):
        return _config((), settings)
    return _config(tuple(sorted(configs.explicit(resource).items())), settings)


@lru_cache(maxsize=256)
def _config(explicit: tuple[tuple[str, str], ...], settings: Settings) -> ShareGroupConfig:
    values = group_values(select_valid(dict(explicit), GROUP), settings)
    found = {name: value.parsed for name, value in values.items()}

    def number(name: str) -> int:
        value = found[name]
        assert isinstance(value, int)
        return value

    reset = str(found["share.auto.offset.reset"])
    duration = reset_duration_ms(reset)
    return ShareGroupConfig(
        session_timeout_ms=number("share.session.timeout.ms"),
        heartbeat_interval_ms=number("share.heartbeat.interval.ms"),
        assignment_interval_ms=number("share.assignment.interval.ms"),
        record_lock_duration_ms=number("share.record.lock.duration.ms"),
        delivery_count_limit=number("share.delivery.count.limit"),
        partition_max_record_locks=number("share.partition.max.record.locks"),
        auto_offset_reset=reset if duration is None else "by_duration",
        reset_duration_ms=duration or 0,
        read_committed=found["share.isolation.level"] == "read_committed",
        renew_acknowledge_enable=bool(found["share.renew.acknowledge.enable"]),
        retry_backoff_ms=number("share.retry.backoff.ms"),
        retry_backoff_max_ms=number("share.retry.backoff.max.ms"),
        ordered_by_key=found["share.order"] == "key",
        dead_letter_topic=str(found["errors.deadletterqueue.topic.name"]),
        copies_dead_letters=bool(found["errors.deadletterqueue.copy.record.enable"]),
    )
