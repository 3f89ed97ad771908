"""Topic configs: the topic's explicit ones over those of patterns over the broker's.

Rules
- A topic's explicit config overrides `[[topics]]` patterns, which override the broker's settings.
- If several patterns match, the later one in the file wins, name by name. BUILT_IN patterns come
  before all of the file.
- `remote.storage.enable` of the broker or a pattern does not apply to topics that cannot be copied.
- `storage.format`, `offset.mode` and `offset.bits` are stored when a topic is created (`pinned`): a
  changed default never changes an existing topic.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate

import msgspec
from msgspec import field

from korvet.config.durability import Durability, strictest
from korvet.config.setting import ConfigError, Source, Value
from korvet.config.topic_settings import EXPLICIT_ONLY, FROM_BROKER, IMMUTABLE, TOPIC, topic_setting
from korvet.config.values import ConfigValue, Settings, Synonym


class Pattern(msgspec.Struct, frozen=True):
    """Defaults for the topics whose name matches a glob."""

    match: str
    configs: dict[str, str]


BUILT_IN = (
    # MirrorMaker 2 translates the committed offsets of a lagging group with the history of its
    # offset syncs, which have one key per partition. Kafka does not compact the active segment, for
    # up to segment.ms; logs here have no active segment.
    Pattern("mm2-offset-syncs.*.internal", {"min.compaction.lag.ms": "604800000"}),
    # Kafka Streams assigns no task to a new instance whose changelog lag exceeds
    # acceptable.recovery.lag, 10,000 offsets: in time mode that is 10 ms. Faust, whose tables use
    # such names too, builds a list of all offsets between two records.
    Pattern("*-changelog", {"offset.mode": "dense"}),
)
"""Defaults for topics of known tools that rely on undocumented behaviour of Kafka."""

REMOTE = "remote.storage.enable"
_NOT_REMOTE = ConfigValue(
    TOPIC[REMOTE], "false", Source.DEFAULT, (Synonym(REMOTE, "false", Source.DEFAULT),)
)
MAX_OPENED = 128 << 20
"""Max decompressed bytes of a batch, unless max.message.bytes is above a quarter of it."""


class TopicPolicy(msgspec.Struct, frozen=True, rename=lambda name: name.replace("_", ".")):
    """A topic's configs, typed, as the broker uses them.

    A field has the name of its config, or names the config. `delete` and `compact` are words of
    cleanup.policy.
    """

    storage_format: str
    offset_mode: str
    offset_bits: int
    storage_compression: str
    compression_type: str
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    max_decompressed_message_bytes: int
    validates_records: bool = field(name="records.validation")
    log_append_time: bool = field(name="message.timestamp.type")
    timestamp_before_max_ms: int = field(name="message.timestamp.before.max.ms")
    timestamp_after_max_ms: int = field(name="message.timestamp.after.max.ms")
    delete: bool
    compact: bool
    min_compaction_lag_ms: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    remote_storage: bool = field(name=REMOTE)
    remote_copy_disable: bool = field(name="remote.log.copy.disable")
    remote_delete_on_disable: bool = field(name="remote.log.delete.on.disable")
    remote_copy_lag_ms: int
    remote_copy_lag_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    segment_bytes: int
    segment_ms: int
    file_delete_delay_ms: int
    consumed_by: tuple[str, ...] = field(name="retention.consumed")
    """The groups of retention.consumed; `*` is every group with a commit on the topic."""
    consumed_delete: bool = field(name="retention.consumed.delete")
    consumed_max_ms: int = field(name="retention.consumed.max.ms")
    acks_all: Durability | None = field(name="acks.all")
    """What acks=-1 waits for after Redis's reply: `durability` and min.insync.replicas."""
    dedupe_window_ms: int
    table_enable: bool
    table_offsets_enable: bool
    dead_letters: bool = field(name="errors.deadletterqueue.group.enable")
    schedules: bool = field(name="delivery.schedule.enable")
    schedule_max_records: int = field(name="delivery.schedule.max.records")
    schedule_max_bytes: int = field(name="delivery.schedule.max.bytes")
    schedule_max_delay_ms: int = field(name="delivery.schedule.max.delay.ms")

    @property
    def max_opened_bytes(self) -> int:
        """Return the most bytes that a batch may have decompressed."""
        limit = self.max_message_bytes
        times = 16 if self.storage_format == "record" else 64
        return min(limit * times, max(MAX_OPENED, 4 * limit))

    @property
    def local_limits(self) -> tuple[int, int]:
        """Return how many ms and bytes of copied records stay in Redis; -1: no limit."""
        most_ms, most_bytes = self.local_retention_ms, self.local_retention_bytes
        total_ms, total_bytes = self.total_limits
        return (
            total_ms if most_ms == -2 else most_ms,
            total_bytes if most_bytes == -2 else most_bytes,
        )

    @property
    def total_limits(self) -> tuple[int, int]:
        """Return how many ms and bytes of records the log keeps; -1: no limit."""
        return (self.retention_ms, self.retention_bytes) if self.delete else (-1, -1)

    @property
    def prefers_segments(self) -> bool:
        """Return whether records that Redis has are read from segments that have them too.

        In layout `record` that costs a fifth of a read from Redis. Large batches cost less in Redis
        than in segments outside the page cache. Segments of a shorter local part stay in it.
        """
        limits = zip(self.local_limits, self.total_limits, strict=True)
        is_shorter = any(local >= 0 and not 0 <= total <= local for local, total in limits)
        return is_shorter or self.storage_format == "record"

    @property
    def copy_lags(self) -> tuple[int, int]:
        """Return after how many ms or bytes a segment may be copied; -1: not by this limit."""
        lag_ms, lag_bytes = self.remote_copy_lag_ms, self.remote_copy_lag_bytes
        kept_ms, kept_bytes = self.local_limits
        return kept_ms if lag_ms == -1 else lag_ms, kept_bytes if lag_bytes == -1 else lag_bytes


def validate(name: str, value: str | None) -> str | None:
    """Return why a topic may not have that config, or None if it may."""
    try:
        setting = topic_setting(name)
        if value is None:
            raise ConfigError(f"{name} needs a value.")
        setting.parse(value)
    except ConfigError as error:
        return str(error)
    return None


def validate_all(configs: Mapping[str, str | None]) -> str | None:
    """Return why a topic may not have these configs together, or None if it may."""
    sentences = (validate(name, value) for name, value in configs.items())
    return next(filter(None, sentences), None)


def validate_change(current: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Return why a topic with the pinned configs `current` may not get `wanted`, or None."""
    for name in sorted(IMMUTABLE):
        if name in wanted and wanted[name] != current.get(name, wanted[name]):
            return (
                f"{name} is fixed when the topic is created: it is {current[name]}. "
                "Create another topic and copy the records."
            )
    return validate_all(wanted)


class TopicConfigs:
    """Resolver of any topic's configs. Immutable: a changed broker setting needs a new one."""

    def __init__(self, settings: Settings, patterns: Sequence[Pattern] = ()) -> None:
        self._settings = settings
        self._patterns = [
            (re.compile(translate(pattern.match)), pattern)
            for pattern in reversed((*BUILT_IN, *patterns))
        ]
        for pattern in patterns:
            sentence = validate_all(pattern.configs)
            named = next((name for name in EXPLICIT_ONLY if name in pattern.configs), None)
            if named is not None:
                sentence = f"{named} is a config of each topic: set it when you create or alter it."
            if sentence is not None:
                raise ConfigError(f"In [[topics]] match = {pattern.match!r}: {sentence}")
        # Values that apply to a topic without explicit configs and patterns.
        self._broker = {name: self._from_broker(name) for name in TOPIC}
        self.acks_all = _acks_all(self._broker)
        """What acks=-1 waits for on a topic without explicit configs."""

    @property
    def reserved_names(self) -> bool:
        """True if a new topic's name may begin with `__`."""
        return self._settings.flag("reserved.topic.names.enable")

    def resolve(self, topic: str, explicit: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Return every topic config by name, with value, source and synonyms.

        A stored config that this version does not know is left out.
        """
        patterns = [pattern for expression, pattern in self._patterns if expression.match(topic)]
        resolved = {name: self._resolve(name, explicit, patterns) for name in TOPIC}
        if REMOTE not in explicit and not self._can_be_remote(resolved):
            resolved[REMOTE] = _NOT_REMOTE
        return resolved

    def policy(self, topic: str, explicit: Mapping[str, str]) -> TopicPolicy:
        """Return the topic's configs, typed, as the broker uses them."""
        resolved = self.resolve(topic, explicit)

        def value(name: str) -> Value:
            return resolved[name].parsed

        cleanup = value("cleanup.policy")
        assert isinstance(cleanup, tuple)
        configs: dict[str, Value | Durability | None] = {
            name: value(name) for name in _POLICY_CONFIGS
        }
        configs |= {
            "records.validation": value("records.validation") == "full",
            "message.timestamp.type": value("message.timestamp.type") == "LogAppendTime",
            "delete": "delete" in cleanup,
            "compact": "compact" in cleanup,
            REMOTE: value(REMOTE) and self._can_be_remote(resolved),
            "acks.all": _acks_all(resolved),
        }
        if configs["table.enable"]:
            # HGET returns what producers sent.
            configs["storage.compression"] = "none"
        return msgspec.convert(configs, TopicPolicy)

    def _can_be_remote(self, resolved: Mapping[str, ConfigValue]) -> bool:
        """Return whether a topic with these configs can be copied to the remote store."""
        cleanup = resolved["cleanup.policy"].parsed
        return (
            self._settings.flag("remote.log.storage.system.enable")
            and isinstance(cleanup, tuple)
            and "compact" not in cleanup
            and resolved["offset.mode"].value != "bytes"
        )

    def find_conflict(self, topic: str, explicit: Mapping[str, str]) -> str | None:
        """Return why a topic may not have these configs together, or None if it may."""
        resolved = self.resolve(topic, explicit)

        def value(name: str) -> Value:
            return resolved[name].parsed

        if value("delivery.schedule.enable") and value("offset.mode") == "bytes":
            return "delivery.schedule.enable does not support topics with offset.mode=bytes."
        holds_records = value("storage.format") == "record" and value("offset.mode") != "bytes"
        if value("table.enable") and not holds_records:
            return (
                "table.enable needs storage.format=record, and not offset.mode=bytes: in layout "
                "`batch` Redis cannot read the records' keys."
            )
        if value("table.offsets.enable") and not value("table.enable"):
            return "table.offsets.enable needs table.enable=true."
        if value("dedupe.window.ms") and not holds_records:
            return (
                "dedupe.window.ms needs storage.format=record, and not offset.mode=bytes: in layout"
                " `batch` records are not stored one by one, and none can be left out."
            )
        return _find_remote_conflict(value, self._settings.flag("remote.log.storage.system.enable"))

    def pinned(self, topic: str, explicit: Mapping[str, str]) -> dict[str, str]:
        """Return the configs to store with a new topic: the explicit and the immutable ones."""
        resolved = self.resolve(topic, explicit)
        return {**explicit, **{name: resolved[name].value or "" for name in sorted(IMMUTABLE)}}

    def _resolve(
        self, name: str, explicit: Mapping[str, str], patterns: Sequence[Pattern]
    ) -> ConfigValue:
        shown = TOPIC[name].shown
        layers: list[Synonym] = []
        if name in explicit and not self._is_pinned_only(name, explicit[name], patterns):
            layers.append(Synonym(name, shown(explicit[name]), Source.DYNAMIC_TOPIC))
        layers += [
            Synonym(name, shown(pattern.configs[name]), Source.STATIC_BROKER)
            for pattern in patterns
            if name in pattern.configs
        ]
        beneath = self._broker[name]
        if not layers:
            return beneath
        return ConfigValue(
            TOPIC[name], layers[0].value, layers[0].source, (*layers, *beneath.synonyms)
        )

    def _is_pinned_only(self, name: str, value: str, patterns: Sequence[Pattern]) -> bool:
        """Return whether the topic has the value only because it was stored at creation.

        Tools that compare a topic's configs with their own would report an explicit value as a
        change.
        """
        if name not in IMMUTABLE:
            return False
        return self._resolve(name, {}, patterns).value == TOPIC[name].shown(value)

    def _from_broker(self, name: str) -> ConfigValue:
        """Return the first broker setting that has a value, in the topic config's unit."""
        if name == "durability":
            return self._default_durability()
        stand_ins = FROM_BROKER[name]
        synonyms = [
            (stand_in, synonym)
            for stand_in in stand_ins
            for synonym in self._settings.synonyms(stand_in.name)
        ]
        if not synonyms:
            default = TOPIC[name].default
            return ConfigValue(
                TOPIC[name], default, Source.DEFAULT, (Synonym(name, default, Source.DEFAULT),)
            )
        stand_in, first = synonyms[0]
        value = stand_in.convert(first.value or "")
        return ConfigValue(
            TOPIC[name], value, first.source, tuple(synonym for _, synonym in synonyms)
        )

    def _default_durability(self) -> ConfigValue:
        """Return what the broker's settings say; the source is that of the more specific one."""
        settings, names = self._settings, [row.name for row in FROM_BROKER["durability"]]
        text = str(
            Durability(settings.integer("acks.all.wait.replicas"), settings.flag("acks.all.fsync"))
        )
        synonyms = [each for name in names for each in settings.synonyms(name)]
        source = min((each.source for each in synonyms), default=Source.DEFAULT)
        return ConfigValue(TOPIC["durability"], text, source, tuple(synonyms))


def _acks_all(resolved: Mapping[str, ConfigValue]) -> Durability | None:
    """Return what acks=-1 waits for with these configs; None for nothing."""
    copies = resolved["min.insync.replicas"].parsed
    assert isinstance(copies, int)
    durability = Durability.parse(resolved["durability"].value or "")
    return strictest((durability, Durability(copies - 1)))


def _find_remote_conflict(value: Callable[[str], Value], is_enabled: bool) -> str | None:
    """Return why a topic may not have its remote configs together, or None if it may.

    `value` returns a topic config in effect; `is_enabled`: the broker has a remote store.
    """
    for unit in ("ms", "bytes"):
        total, local = value(f"retention.{unit}"), value(f"local.retention.{unit}")
        assert isinstance(total, int) and isinstance(local, int)
        if local > total >= 0 or (local == -1 and total >= 0):
            return (
                f"Invalid value {local} for configuration local.retention.{unit}: Value must not "
                f"be more than retention.{unit} property value: {total}"
            )
        kept, lag = total if local == -2 else local, value(f"remote.copy.lag.{unit}")
        assert isinstance(lag, int)
        if lag > kept >= 0:
            return (
                f"Invalid value {lag} for configuration remote.copy.lag.{unit}: Value must not be "
                f"more than local.retention.{unit}, which is {kept}: records stay in Redis until "
                "they are copied"
            )
        if value("remote.log.copy.disable") and local not in (-2, total):
            return (
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
                f"`retention.{unit}` must be set to the identical value because there will be no "
                "more logs copied to the remote storage."
            )
    conflict = _find_consumed_conflict(value)
    if conflict is not None or not value("remote.storage.enable"):
        return conflict
    if not is_enabled:
        return "Tiered Storage functionality is disabled in the broker."
    cleanup = value("cleanup.policy")
    if isinstance(cleanup, tuple) and "compact" in cleanup:
        return (
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy "
            "being an empty list."
        )
    if value("offset.mode") == "bytes":
        return "Remote log storage does not support topics with offset.mode=bytes."
    return None


def _find_consumed_conflict(value: Callable[[str], Value]) -> str | None:
    """Return why retention.consumed has no effect with the topic's other configs, or None."""
    groups = value("retention.consumed")
    if not groups:
        return None
    assert isinstance(groups, tuple)
    if groups[0].startswith("[") and groups[-1].endswith("]"):
        return (
            "retention.consumed must be group,group without brackets: only kafka-configs takes "
            "and removes them."
        )
    cleanup, deletes = value("cleanup.policy"), value("retention.consumed.delete")
    if deletes and isinstance(cleanup, tuple) and "delete" not in cleanup:
        return "retention.consumed.delete=true needs cleanup.policy=delete."
    if not deletes and not value("remote.storage.enable"):
        return (
            "retention.consumed needs remote.storage.enable=true or retention.consumed.delete="
            "true: records that are not copied can only leave memory by deletion."
        )
    return None


_POLICY_CONFIGS = [
    each.encode_name for each in msgspec.structs.fields(TopicPolicy) if each.encode_name in TOPIC
]
