"""Generate the options, settings and metrics of the reference pages."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping

from korvet.base.metrics import Metrics
from korvet.config.broker_config import OPTIONS, Config
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import GROUP
from korvet.config.setting import Setting, type_of
from korvet.config.topic_settings import FROM_BROKER, TOPIC

WIDTH = 100

FIRST = {
    "storage.format": (TOPIC, "You want throughput (`batch`) more than entries that you can read."),
    "offset.mode": (TOPIC, "Your tools subtract offsets (`dense`)."),
    "num.partitions": (BROKER, "More consumers of a group, or more Redis servers, share a topic."),
    "auto.create.topics.enable": (BROKER, "A wrong name must not become a topic."),
    "retention.ms": (TOPIC, "Records are needed for longer, or memory is short."),
    "retention.bytes": (TOPIC, "A partition must not exceed a size."),
    "cleanup.policy": (TOPIC, "Only the latest record of each key matters (`compact`)."),
    "max.message.bytes": (TOPIC, "Producers get MESSAGE_TOO_LARGE."),
    "durability": (TOPIC, "An acknowledged record must be on disk or on replicas."),
    "local.memory.bytes": (BROKER, "Your own Redis must not grow above a budget."),
    "remote.storage.url": (BROKER, "Old records should move to a directory or a bucket."),
    "fetch.cache.bytes": (BROKER, "A broker has little memory, or consumers read far behind."),
    "ssl.keystore.location": (BROKER, "Clients connect over a network that you do not trust."),
    "sasl.enabled.mechanisms": (
        BROKER,
        "Clients authenticate in another way, such as OAUTHBEARER.",
    ),
    "authorizer.class.name": (BROKER, "ACL rules should decide what a client may do (`korvet`)."),
    "super.users": (BROKER, "An administrator must not depend on ACL rules."),
    "group.initial.rebalance.delay.ms": (BROKER, "The first member of a group must not wait (0)."),
    "offsets.retention.minutes": (BROKER, "A group may be away for longer than a week."),
    "transaction.max.timeout.ms": (BROKER, "A producer asks for more, such as Flink's hour."),
    "share.delivery.count.limit": (GROUP, "Jobs of a queue need more, or fewer, attempts."),
}
"""Settings that most installations look at, and when to change each."""

_RETENTION = "Retention and compaction"
_STORAGE = "Storage and offsets"
_RECORDS = "Topics and records"
_ACKS = "Acknowledgements and transactions"
_TIERS = "Tiered storage"
_GROUPS = "Consumer groups"
_SHARE = "Share groups"
_STREAMS = "Streams groups"
_CONNECTIONS = "Connections and requests"
_AUTHENTICATION = "Authentication"

_BROKER_SUBJECTS = {
    _STORAGE: "storage. offset.mode offset.bits fetch.cache.",
    _RECORDS: "num. auto. reserved. delete.topic. max.topics message. max.decompressed. records. "
    "compression. log.message.",
    _RETENTION: "log.retention. log.cleanup. log.cleaner.",
    _ACKS: "acks. min.insync. producer. transaction. transactional.",
    "Redis and cluster": "redis. cluster. broker. legacy. zookeeper.",
    _CONNECTIONS: "listener. socket. queued. max.connection connections. max.incremental. "
    "fetch.max.",
    "TLS": "ssl.",
    _AUTHENTICATION: "sasl. connection. connections.max.reauth.",
    "Authorization and audit": "authorizer. super. allow. audit.",
    _GROUPS: "group. max.groups offsets. offset.metadata.",
    _SHARE: "group.share. errors.deadletterqueue.",
    _STREAMS: "group.streams.",
    _TIERS: "remote. log.remote. log.local. log.segment. log.roll. fetch.chunk. local.memory.",
    "Console, Avro and metrics": "console. schema. avro. monitoring.",
}
_TOPIC_SUBJECTS = {
    _STORAGE: "storage. offset.",
    _RECORDS: "max. records. message. compression.",
    _RETENTION: "retention. cleanup. delete. min.compaction. min.cleanable.",
    "Acknowledgements": "durability min.insync.",
    "Scheduled records": "delivery.",
    "Deduplication and tables": "dedupe. table.",
    "Dead letter queues": "errors.",
    _TIERS: "remote. local. segment. file.",
}
_GROUP_SUBJECTS = {
    _GROUPS: "consumer. group.",
    _SHARE: "share. errors.",
    _STREAMS: "streams.",
}
"""Subjects with the beginnings of their settings' names; the longest beginning decides."""

_DEFAULTS = {"listen": Config().listeners[0].address}
"""Defaults of options that are not a field of Config."""


def options() -> str:
    """Return the start options as a table."""
    rows = ["| Option | Default | Meaning |", "|---|---|---|"]
    defaults = Config()
    for name, sentence in OPTIONS.items():
        value = _DEFAULTS.get(name, getattr(defaults, name.replace("-", "_"), None))
        rows.append(f"| `--{name}` | {code(None if value is None else str(value))} | {sentence} |")
    return "\n".join(rows) + "\n"


def first() -> str:
    """Return the settings of FIRST as a table, with links to their sections."""
    rows = ["| Setting | Change it if | Default | Of |", "|---|---|---|---|"]
    kinds = (("broker", BROKER), ("topic", TOPIC), ("group", GROUP))
    for name, (table, reason) in FIRST.items():
        holders = [kind for kind, settings_of in kinds if name in settings_of]
        kind = next(kind for kind, settings_of in kinds if settings_of is table)
        anchor = name.replace(".", "") + ("_1" if holders.index(kind) else "")
        default = _value(table[name]) if table[name].default is not None else "unset"
        rows.append(f"| [`{name}`](#{anchor}) | {reason} | {default} | {', '.join(holders)} |")
    return "\n".join(rows) + "\n"


def settings() -> str:
    """Return the broker settings that have an effect by subject, one section each."""
    return _by_subject(BROKER, _BROKER_SUBJECTS, _changes)


def topic_configs() -> str:
    """Return the topic configs that have an effect, with the settings of their defaults."""
    return _by_subject(TOPIC, _TOPIC_SUBJECTS, _default_from)


def group_configs() -> str:
    """Return the group configs, one section each."""
    return _by_subject(GROUP, _GROUP_SUBJECTS, lambda _: "")


def accepted_settings() -> str:
    """Return the names of broker settings and topic configs without an effect."""
    return "\n".join(
        [
            "Broker settings:",
            "",
            _names(BROKER.values()),
            "",
            "Topic configs:",
            "",
            _names(TOPIC.values()),
            "",
        ]
    )


def metrics() -> str:
    """Return the metrics as a table, under the names that Prometheus sees."""
    rows = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for family in Metrics().snapshot():
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        labels = ", ".join(family.labels)
        rows.append(f"| `{name}` | {family.kind} | {labels} | {family.sentence} |")
    return "\n".join(rows) + "\n"


def code(text: str | None) -> str:
    """Return a value in Markdown's code style; empty for an unset value."""
    return "" if text is None else f"`{text}`"


def _by_subject(
    table: Mapping[str, Setting], subjects: Mapping[str, str], facts: Callable[[Setting], str]
) -> str:
    """Return a heading for each subject with its settings. Raises ValueError if one has none."""
    beginnings = {word: subject for subject, words in subjects.items() for word in words.split()}
    sections: dict[str, list[str]] = {subject: [] for subject in subjects}
    for row in table.values():
        if row.effect:
            longest = max(
                (word for word in beginnings if row.name.startswith(word)), key=len, default=""
            )
            if not longest:
                raise ValueError(f"Add {row.name} to a subject in docs/generate/settings.py.")
            sections[beginnings[longest]].append(_section(row, facts(row)))
    return "\n".join(f"### {subject}\n\n" + "\n".join(rows) for subject, rows in sections.items())


def _section(setting: Setting, facts: str) -> str:
    fixed = "Fixed when the topic is created." if setting.immutable else ""
    default = "Unset by default." if setting.default is None else f"Default: {_value(setting)}."
    line = " ".join(filter(None, (f"Type: {type_of(setting, code)}.", default, facts, fixed)))
    text = [f"#### `{setting.name}`", "", *wrapped(setting.sentence), "", *wrapped(line), ""]
    return "\n".join(text)


def _value(setting: Setting) -> str:
    return code(setting.default) if setting.default else "empty"


def _changes(setting: Setting) -> str:
    return "Changes while brokers run." if setting.dynamic else "Read at start."


def _default_from(setting: Setting) -> str:
    names = [code(row.name) for row in FROM_BROKER[setting.name]]
    if not names:
        return ""
    kind = "setting" if len(names) == 1 else "first that is set of"
    return f"Broker {kind}: {', '.join(names)}."


def wrapped(text: str) -> list[str]:
    """Return a text in lines of at most 100 characters."""
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _names(rows: Iterable[Setting]) -> str:
    return "\n".join(_quoted(row for row in rows if not row.effect))


def _quoted(rows: Iterable[Setting]) -> Iterator[str]:
    yield from wrapped(", ".join(code(row.name) for row in rows) + ".")
