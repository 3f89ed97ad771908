"""What a topic's configs are: its own, laid over the patterns', laid over the broker's.

Rules
- A topic's own config wins over `[[topics]]` patterns, those over the broker's settings.
- Of several patterns that match a topic, the later one in the file wins, name by name; those of
  BUILT_IN come before all of the file.
- `storage.format`, `offset.mode` and `offset.bits` are written down when a topic is created
  (`pinned`), so a later change of a default never changes a topic that exists.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

import msgspec

from korvet.config.setting import ConfigError, Source, Value
from korvet.config.topic_settings import FROM_BROKER, IMMUTABLE, TOPIC, topic_setting
from korvet.config.values import ConfigValue, Settings, Synonym


class Pattern(msgspec.Struct, frozen=True):
    """Defaults for the topics whose name matches a glob."""

    match: str
    configs: dict[str, str]


BUILT_IN = (
    # MirrorMaker 2 finds the offset of a group that lags in the history of its syncs, which have
    # one key a partition. Kafka leaves it in the active segment, up to segment.ms; no log here has
    # such a segment.
    Pattern("mm2-offset-syncs.*.internal", {"min.compaction.lag.ms": "604800000"}),
    # Kafka Streams gives a new instance no task whose changelog is longer than
    # acceptable.recovery.lag, 10,000 offsets: in time mode that is 10 ms. Faust, whose tables have
    # such names too, makes a list of all offsets between two records.
    Pattern("*-changelog", {"offset.mode": "dense"}),
)
"""Defaults for topics of well-known tools that count on what Kafka does and does not promise."""


class TopicPolicy(msgspec.Struct, frozen=True):
    """A topic's configs as the broker acts on them."""

    storage_format: str
    offset_mode: str
    offset_bits: int
    storage_compression: str
    compression_type: str
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    max_decompressed_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    delete: bool
    compact: bool
    min_compaction_lag_ms: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float


def validate(name: str, value: str | None) -> str | None:
    """None when a topic may have that config, else the sentence that says why not."""
    try:
        setting = topic_setting(name)
        if value is None:
            raise ConfigError(f"{name} needs a value.")
        setting.parse(value)
    except ConfigError as error:
        return str(error)
    return None


def validate_all(configs: Mapping[str, str | None]) -> str | None:
    """None when a topic may have these configs together, else the sentence of the first problem."""
    for name, value in configs.items():
        sentence = validate(name, value)
        if sentence is not None:
            return sentence
    return None


def validate_change(current: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """None when a topic with the pinned configs `current` may get `wanted`, else why not."""
    for name in sorted(IMMUTABLE):
        if name in wanted and wanted[name] != current.get(name, wanted[name]):
            return (
                f"{name} is fixed when the topic is created: it is {current[name]}. "
                "Create another topic and copy the records."
            )
    return validate_all(wanted)


class TopicConfigs:
    """Resolves any topic's configs; immutable, so a changed broker setting makes a new one."""

    def __init__(self, settings: Settings, patterns: Sequence[Pattern] = ()) -> None:
        self._settings = settings
        self._patterns = [
            (re.compile(translate(pattern.match)), pattern)
            for pattern in reversed((*BUILT_IN, *patterns))
        ]
        for pattern in patterns:
            sentence = validate_all(pattern.configs)
            if sentence is not None:
                raise ConfigError(f"In [[topics]] match = {pattern.match!r}: {sentence}")
        # What a topic has when neither it nor a pattern says anything: the same for all topics.
        self._broker = {name: self._from_broker(name) for name in TOPIC}

    @property
    def reserved_names(self) -> bool:
        """Whether a new topic's name may begin with `__`."""
        return self._settings.flag("reserved.topic.names.enable")

    def resolve(self, topic: str, explicit: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Every topic config by name, with its value, its source and what lies beneath.

        A stored config that this version does not know is left out.
        """
        patterns = [pattern for expression, pattern in self._patterns if expression.match(topic)]
        return {name: self._resolve(name, explicit, patterns) for name in TOPIC}

    def policy(self, topic: str, explicit: Mapping[str, str]) -> TopicPolicy:
        """The configs the broker acts on, typed."""
        resolved = self.resolve(topic, explicit)

        def value(name: str) -> Value:
            found = resolved[name]
            return found.setting.parse(found.value or "")

        cleanup = value("cleanup.policy")
        assert isinstance(cleanup, tuple)
        fields = {field: value(name) for field, name in _POLICY.items()}
        fields["log_append_time"] = value("message.timestamp.type") == "LogAppendTime"
        fields["delete"] = "delete" in cleanup
        fields["compact"] = "compact" in cleanup
        return msgspec.convert(fields, TopicPolicy)

    def pinned(self, topic: str, explicit: Mapping[str, str]) -> dict[str, str]:
        """What a new topic writes down: its own configs and the values that can never change."""
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
        """Whether the topic has the value for want of another: nobody need have set it, and tools
        that compare a topic with what they were told would take it for somebody's change."""
        if name not in IMMUTABLE:
            return False
        return self._resolve(name, {}, patterns).value == TOPIC[name].shown(value)

    def _from_broker(self, name: str) -> ConfigValue:
        """The first broker setting that has a value, in the topic's own unit."""
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


_POLICY = {
    "storage_format": "storage.format",
    "offset_mode": "offset.mode",
    "offset_bits": "offset.bits",
    "storage_compression": "storage.compression",
    "compression_type": "compression.type",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "max_message_bytes": "max.message.bytes",
    "max_decompressed_message_bytes": "max.decompressed.message.bytes",
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "delete_retention_ms": "delete.retention.ms",
    "min_cleanable_dirty_ratio": "min.cleanable.dirty.ratio",
}
