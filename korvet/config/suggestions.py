"""Hints for unknown setting names: the nearest setting, or why Kafka's setting is missing here.

Rules
- A setting is near if each word of the name abbreviates, extends or misspells one of its words.
  Order and the separators `.`, `-` and `_` do not matter. The setting may have one more word, and
  the name may begin with `log.` as those of brokers do.
- A name that Kafka has is never treated as a typing error: it has another meaning in Kafka.
"""

import re
from collections.abc import Collection
from difflib import get_close_matches
from fnmatch import fnmatchcase

_BETWEEN = re.compile(r"[.\-_\s]+")
_NEAR = 0.8
_LONGEST = 100

_KAFKAS: dict[str, tuple[str, ...]] = {
    "there are no delegation tokens here": ("delegation.token.*",),
    "key stores are PEM here, and only ssl.key.password protects a key": (
        "ssl.keystore.password", "ssl.truststore.password",
    ),
    "it belongs to Java's security": (
        "early.start.listeners", "principal.builder.class", "sasl.*", "security.*",
        "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class",
        "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider",
        "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
    ),
    "quotas are set for users, client ids and addresses here": (
        "alter.log.dirs.replication.quota.*", "client.quota.callback.class", "controller.quota.*",
        "quota.*", "replication.quota.*",
    ),
    "there is no such internal topic here": (
        "offsets.commit.required.acks", "offsets.load.buffer.size", "offsets.topic.*",
        "transaction.state.log.*",
    ),
    "there are no controllers and no elections here": (
        "auto.leader.rebalance.enable", "broker.heartbeat.interval.ms",
        "broker.id.generation.enable", "broker.session.timeout.ms", "control.plane.listener.name",
        "controlled.shutdown.*", "controller.*", "initial.broker.registration.timeout.ms",
        "inter.broker.*", "leader.imbalance.*", "metadata.*", "process.roles",
        "reserved.broker.max.id", "unstable.*", "zookeeper.*",
    ),
    "it belongs to Kafka's own storage": (
        "cordoned.log.dirs", "delete.records.purgatory.purge.interval.requests",
        "follower.fetch.last.tiered.offset.enable", "log.cleaner.enable",
        "log.dir.failure.timeout.ms", "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms", "log.initial.task.delay.ms",
        "log.message.downconversion.enable", "log.message.format.version",
        "log.message.timestamp.difference.max.ms", "num.replica.alter.log.dirs.threads", "remote.*",
        "replica.*",
    ),
    "it belongs to the inside of Kafka's brokers": (
        "add.partitions.to.txn.*", "group.share.assignor*", "group.streams.assignor*",
        "group.share.persister.class.name", "share.assignor*", "streams.assignor*",
        "share.coordinator.*", "share.fetch.purgatory.purge.interval.requests",
        "alter.config.policy.class.name", "auto.include.jmx.reporter", "config.providers",
        "consumer.assignment.interval.ms", "create.topic.policy.class.name",
        "fetch.purgatory.purge.interval.requests", "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms", "group.consumer.min.assignment.interval.ms",
        "group.coordinator.append.linger.ms", "group.coordinator.background.threads",
        "group.coordinator.cached.buffer.max.bytes", "group.coordinator.threads", "kafka.metrics.*",
        "max.request.partition.size.limit", "metric.reporters", "metrics.*",
        "offsets.commit.timeout.ms", "producer.purgatory.purge.interval.requests",
        "request.timeout.ms", "socket.*", "telemetry.max.bytes",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transaction.two.phase.commit.enable",
    ),
}  # fmt: skip
"""Kafka settings that do not exist here, by reason; `a.*` matches every name that begins so."""


def hint(name: str, settings: Collection[str]) -> str:
    """Return the hint for an unknown name, given the names of the settings."""
    for reason, names in _KAFKAS.items():
        if any(fnmatchcase(name, known) for known in names):
            return f"Kafka has it, but {reason}; leave it out."
    near = nearest(name, settings) or nearest(name.removeprefix("log."), settings)
    return f"did you mean {near}?" if near else "`korvet settings` lists all."


def nearest(name: str, settings: Collection[str]) -> str | None:
    """Return the setting that the name most likely misspells, or None."""
    name = name[:_LONGEST].lower()
    near = [setting for setting in settings if _covers(_words(setting), _words(name))]
    return next(iter(get_close_matches(name, near, n=1, cutoff=0)), None)


def _words(name: str) -> list[str]:
    return [word for word in _BETWEEN.split(name) if word]


def _covers(has: list[str], words: list[str]) -> bool:
    """Return whether each word is near a word of `has`, which may have one more."""
    if not words or not 0 <= len(has) - len(words) <= 1:
        return "".join(has) == "".join(words)
    return all(
        any(other.startswith(word) or word.startswith(other) for other in has)
        or get_close_matches(word, has, n=1, cutoff=_NEAR)
        for word in words
    )
