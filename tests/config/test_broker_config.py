"""Check options, settings and topic configs: refusals, and precedence."""

from pathlib import Path

import pytest

from korvet.config.broker_config import Config, ConfigError, load
from korvet.config.broker_settings import BROKER
from korvet.config.durability import Durability
from korvet.config.group_settings import GROUP
from korvet.config.listeners import Address, Listener
from korvet.config.setting import Source, find_setting
from korvet.config.topic_policy import (
    Pattern,
    TopicConfigs,
    validate,
    validate_all,
    validate_change,
)
from korvet.config.topic_settings import FROM_BROKER, IMMUTABLE, TOPIC
from korvet.config.values import Settings

REFUSED_SETTINGS = [
    ("num.partitons=3", "Unknown setting 'num.partitons': did you mean num.partitions?"),
    ("zzz=3", "Unknown setting 'zzz': `korvet settings` lists all."),
    ("num.partitions", "--set needs NAME=VALUE"),
    ("num.partitions=0", "num.partitions must be a whole number from 1 to 10000, not '0'."),
    ("num.partitions=1_0", "num.partitions must be a whole number"),
    ("num.partitions=٣", "num.partitions must be a whole number"),
    ("num.partitions=" + "9" * 5000, "num.partitions must be a whole number"),
    ("auto.create.topics.enable=yes", "auto.create.topics.enable must be true or false"),
    ("offset.mode=random", "offset.mode must be one of time, dense, bytes, not 'random'."),
    ("offset.bits=13", "offset.bits must be a whole number from 8 to 12"),
    ("log.cleanup.policy=delete,shred", "log.cleanup.policy must be a comma-separated list"),
    ("log.cleanup.policy=delete,,delete", "log.cleanup.policy must be a comma-separated list"),
    ("log.cleaner.min.cleanable.ratio=nan", "must be a number from 0 to 1"),
    ("compression.gzip.level=0", "compression.gzip.level must be"),
    ("cluster.id=a\x07b", "cluster.id must be printable text"),
    ("group.min.session.timeout.ms=1800001", "must not exceed group.max.session.timeout.ms"),
]


@pytest.mark.parametrize(("assignment", "sentence"), REFUSED_SETTINGS)
def test_a_setting_that_cannot_be_is_refused_in_one_sentence(
    assignment: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load({}, sets=[assignment], environ={})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


REFUSED_OPTIONS = [
    ("listen", "9092", "--listen must be HOST:PORT"),
    ("listen", "localhost:", "--listen must be HOST:PORT"),
    ("listen", ":9092", "--listen must be HOST:PORT"),
    ("advertise", "h:65536", "--advertise must be HOST:PORT"),
    ("advertise", "h:0", "--advertise must be HOST:PORT that clients can connect to, not 'h:0'"),
    ("advertise", "0.0.0.0:9092", "--advertise must be HOST:PORT that clients can connect to"),
    ("advertise", "[::]:9092", "--advertise must be HOST:PORT that clients can connect to"),
    ("ops", "h:-1", "--ops must be HOST:PORT"),
    ("workers", "0", "--workers must be a whole number from 1 to 256"),
    ("node-id", "-1", "--node-id must be a whole number from 0"),
    ("preset", "kakfa", "--preset must be redis or kafka, not 'kakfa'"),
    ("log-level", "loud", "--log-level must be one of debug, info, warning, error"),
    ("log-format", "xml", "--log-format must be text or json"),
    ("redis", "localhost:6379", "--redis must be a URL such as redis://localhost:6379"),
    ("namespace", "a{b", "--namespace may hold letters"),
    ("namespace", "", "--namespace may hold letters"),
    ("data-dir", "", "--data-dir must not be empty"),
    ("redis-server", "", "--redis-server must not be empty"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED_OPTIONS)
def test_an_option_that_cannot_be_is_refused_in_one_sentence(
    name: str, value: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load({name: value}, environ={})


def test_the_ops_port_is_on_unless_it_is_off() -> None:
    by_default, chosen, off = (
        load({"ops": ops} if ops else {}, environ={}) for ops in (None, "h:1", "off")
    )
    assert (str(by_default.ops), by_default.ops_is_chosen) == ("127.0.0.1:9080", False)
    assert (str(chosen.ops), chosen.ops_is_chosen) == ("h:1", True)
    assert off.ops is None
    assert load({"listen": "127.0.0.1:9080"}, environ={}).ops is not None, "a free port is taken"


@pytest.mark.parametrize("other", ["legacy-listen", "ops"])
def test_one_port_for_two_things_is_refused_in_one_sentence(other: str) -> None:
    with pytest.raises(ConfigError, match=f"--listen and --{other} are both h:1: use different"):
        load({"listen": "h:1", other: "h:1"}, environ={})
    load({"listen": "h:0", other: "h:0"}, environ={})


REFUSED_FILES = [
    ("num.partitions = ", "is not valid TOML"),
    ("redis = 'redis://h'\nredis.timeout.ms = 500", 'may be quoted: "redis.timeout.ms" = 15000.'),
    ("num.partitons = 3", "did you mean num.partitions?"),
    ("liste = 'a:1'", "did you mean listen?"),
    ("topics = 3", "topics must be [[topics]] blocks"),
    ("[[topics]]\nretention.ms = 1", 'needs match = "glob"'),
    ("[[topics]]\nmatch = 'a*'\nretention.m = 1", "did you mean retention.ms?"),
    ("[[topics]]\nmatch = 'a*'\nretention.ms = -2", "retention.ms must be a whole number"),
    ("num.partitions = [1]", "must be a text, a number, true, false or a list of texts"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED_FILES)
def test_a_file_that_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "korvet.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load({}, file=file, environ={})
    assert sentence in str(refused.value)


def test_kafkas_own_file_has_a_different_error_than_a_misspelt_one(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("process.roles=broker,controller\nlisteners=PLAINTEXT://:9092\n")
    with pytest.raises(ConfigError, match="Kafka's own file is not read"):
        load({}, file=file, environ={})


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("broker.id", "node-id"),
        ("node.id", "node-id"),
        ("log.dir", "data-dir"),
        ("log.dirs", "data-dir"),
    ],
)
def test_a_setting_of_kafkas_that_is_an_option_here_names_the_option(
    tmp_path: Path, name: str, option: str
) -> None:
    sentence = f"{name} is not a setting here: use the option --{option}, or {option} in a file."
    with pytest.raises(ConfigError, match=sentence):
        load({}, sets=[f"{name}=x"], environ={})
    file = tmp_path / "korvet.toml"
    file.write_text(f'{name} = "x"')
    with pytest.raises(ConfigError, match=sentence):
        load({}, file=file, environ={})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: No such file"):
        load({}, file=tmp_path / "gone.toml", environ={})


def test_nothing_given_means_the_defaults() -> None:
    config = load({}, environ={})
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", Address("127.0.0.1", 9092)),)
    assert config.redis is None
    assert config.settings.text("storage.format") == "record"
    assert config.settings.integer("num.partitions") == 1
    assert config.settings.flag("auto.create.topics.enable")


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "korvet.toml"
    file.write_text(
        'listen = "[::1]:19092"\nredis = "redis://file:1"\nnode-id = 7\n'
        'num.partitions = 4\n"log.retention.hours" = 1\nlog.cleanup.policy = ["delete"]\n'
    )
    environ = {"KORVET_REDIS_URL": "redis://environment:1"}
    config = load({}, file=file, environ=environ)
    assert config.redis == "redis://environment:1"
    assert (str(config.listeners[0]), config.node_id) == ("[::1]:19092", 7)
    assert config.settings.integer("num.partitions") == 4
    config = load(
        {"redis": "redis://flag:1", "node-id": "8"},
        file=file,
        sets=["num.partitions=5"],
        environ=environ,
    )
    assert (config.redis, config.node_id) == ("redis://flag:1", 8)
    assert config.settings.integer("num.partitions") == 5


def test_every_setting_has_a_sentence_and_a_default_it_would_accept() -> None:
    for rows in (BROKER, TOPIC, GROUP):
        for name, setting in rows.items():
            assert setting.sentence.endswith("."), name
            if setting.default is not None:
                setting.parse(setting.default)


def test_a_setting_without_effect_says_so() -> None:
    assert "no effect here" in TOPIC["segment.index.bytes"].documentation
    assert "no effect here" not in TOPIC["retention.ms"].documentation
    assert "Fixed when the topic is created." in TOPIC["offset.mode"].documentation


def test_every_broker_setting_that_a_topic_falls_back_to_exists() -> None:
    for name, stand_ins in FROM_BROKER.items():
        for stand_in in stand_ins:
            assert stand_in.name in BROKER, name


def test_a_topics_default_is_what_its_broker_settings_give() -> None:
    for name, value in TopicConfigs(Settings()).resolve("orders", {}).items():
        assert value.value == TOPIC[name].default, name
        assert value.source is Source.DEFAULT
        assert value.is_default


@pytest.mark.parametrize(
    ("settings", "retention_ms", "source"),
    [
        ({}, 604_800_000, Source.DEFAULT),
        ({"log.retention.hours": "2"}, 7_200_000, Source.STATIC_BROKER),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000, Source.STATIC_BROKER),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4, Source.STATIC_BROKER),
        ({"log.retention.hours": "-1"}, -1, Source.STATIC_BROKER),
    ],
)
def test_retention_falls_back_from_ms_to_minutes_to_hours(
    settings: dict[str, str], retention_ms: int, source: Source
) -> None:
    configs = TopicConfigs(Settings(settings))
    assert configs.policy("orders", {}).retention_ms == retention_ms
    assert configs.resolve("orders", {})["retention.ms"].source is source


@pytest.mark.parametrize(
    ("settings", "configs", "durability", "waits_for"),
    [
        ({}, {}, "memory", None),
        ({}, {"durability": "fsync"}, "fsync", (0, True)),
        ({}, {"durability": "replicas:2"}, "replicas:2", (2, False)),
        ({}, {"durability": "fsync+replicas:100"}, "fsync+replicas:100", (100, True)),
        ({}, {"min.insync.replicas": "2"}, "memory", (1, False)),
        ({"min.insync.replicas": "3"}, {"durability": "fsync"}, "fsync", (2, True)),
        ({}, {"durability": "replicas:3", "min.insync.replicas": "2"}, "replicas:3", (3, False)),
        ({"acks.all.wait.replicas": "1"}, {}, "replicas:1", (1, False)),
        (
            {"acks.all.fsync": "true", "acks.all.wait.replicas": "1"},
            {},
            "fsync+replicas:1",
            (1, True),
        ),
        ({"acks.all.fsync": "true"}, {"durability": "memory"}, "memory", None),
    ],
)
def test_a_topic_has_the_durability_of_its_config_or_of_the_brokers_settings(
    settings: dict[str, str],
    configs: dict[str, str],
    durability: str,
    waits_for: tuple[int, bool] | None,
) -> None:
    resolver = TopicConfigs(Settings(settings))
    found = resolver.resolve("orders", configs)["durability"]
    assert found.value == durability
    assert found.is_default == ("durability" not in configs and durability == "memory")
    assert resolver.policy("orders", configs).acks_all == waits_for


@pytest.mark.parametrize(
    "text",
    ["", "disk", "replicas", "replicas:0", "replicas:101", "fsync+", "replicas:1+fsync", "FSYNC"],
)
def test_another_durability_is_refused(text: str) -> None:
    reason = validate("durability", text)
    assert reason is not None and "must be memory, fsync, replicas:N" in reason


@pytest.mark.parametrize(
    ("durability", "info", "appendfsync", "reason"),
    [
        ("fsync", {"aof_enabled": "0"}, "", "append-only file is off"),
        ("fsync", {"redis_version": "7.0.15"}, "", "Redis 7.0.15 has no WAITAOF"),
        ("fsync", {"valkey_version": "9.0.1"}, "", ""),
        ("fsync", {}, "no", "appendfsync is no"),
        ("fsync", {}, "everysec", ""),
        ("replicas:1", {}, "", "0 of 1 replicas are connected"),
        ("replicas:1", {"slave0": "ip=::1,state=wait_bgsave"}, "", "0 of 1"),
        ("replicas:1", {"slave0": "ip=::1,state=online", "aof_enabled": "0"}, "", ""),
        ("fsync+replicas:2", {"slave0": "state=online"}, "", "1 of 2 replicas"),
    ],
)
def test_what_a_server_cannot_keep_has_a_reason(
    durability: str, info: dict[str, str], appendfsync: str, reason: str
) -> None:
    server = {"redis_version": "7.2.4", "aof_enabled": "1", **info}
    found = Durability.parse(durability).why_not_kept(server, appendfsync=appendfsync)
    assert reason in found and bool(reason) == bool(found)


def test_a_topic_without_a_cleanup_policy_keeps_everything() -> None:
    policy = TopicConfigs(Settings({})).policy("orders", {"cleanup.policy": ""})
    assert (policy.delete, policy.compact) == (False, False)


def test_a_topics_own_config_wins_over_patterns_and_a_later_pattern_over_an_earlier() -> None:
    configs = TopicConfigs(
        Settings({"log.retention.ms": "1"}),
        [
            Pattern("*", {"retention.ms": "2", "offset.mode": "dense"}),
            Pattern("logs.*", {"retention.ms": "3"}),
        ],
    )
    assert configs.policy("orders", {}).retention_ms == 2
    assert configs.policy("logs.web", {}).retention_ms == 3
    assert configs.policy("logs.web", {"retention.ms": "4"}).retention_ms == 4
    assert configs.policy("logs.web", {}).offset_mode == "dense"
    found = configs.resolve("logs.web", {"retention.ms": "4"})["retention.ms"]
    assert found.source is Source.DYNAMIC_TOPIC
    assert [synonym.value for synonym in found.synonyms] == ["4", "3", "2", "1", "168"]


def test_what_shapes_storage_is_written_down_at_creation() -> None:
    configs = TopicConfigs(Settings({"offset.mode": "dense"}))
    pinned = configs.pinned("orders", {"retention.ms": "5", "storage.format": "batch"})
    assert pinned == {
        "retention.ms": "5",
        "storage.format": "batch",
        "offset.mode": "dense",
        "offset.bits": "10",
    }
    assert set(pinned) >= IMMUTABLE


def test_what_shapes_storage_cannot_change_afterwards() -> None:
    current = {"offset.mode": "time", "offset.bits": "10", "storage.format": "record"}
    assert validate_change(current, {"offset.mode": "time", "retention.ms": "1"}) is None
    sentence = validate_change(current, {"offset.mode": "dense"})
    assert sentence is not None and sentence.startswith("offset.mode is fixed when the topic")
    assert validate_change(current, {"retention.ms": "x"}) is not None


REFUSED_TOPIC_CONFIGS = [
    ("retention.msec", "1", "Unknown topic config 'retention.msec': did you mean retention.ms?"),
    ("retention.ms", None, "retention.ms needs a value."),
    ("retention.ms", "-2", "retention.ms must be a whole number from -1"),
    ("cleanup.policy", ",", "cleanup.policy must be a comma-separated list of delete, compact"),
    ("storage.format", "json", "storage.format must be one of record, batch"),
    ("remote.storage.enable", "yes", "remote.storage.enable must be true or false"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED_TOPIC_CONFIGS)
def test_a_topic_config_that_cannot_be_is_refused_in_one_sentence(
    name: str, value: str | None, sentence: str
) -> None:
    refused = validate(name, value)
    assert refused is not None and refused.startswith(sentence)


SENT_BY_TOOLS = {
    "Connect": {"cleanup.policy": "compact"},
    "Schema Registry": {"cleanup.policy": "compact"},
    "Streams changelog": {
        "cleanup.policy": "compact,delete",
        "retention.ms": "172800000",
        "min.compaction.lag.ms": "1000",
        "message.timestamp.type": "CreateTime",
        "segment.bytes": "1048576",
    },
    "Streams repartition": {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
        "message.timestamp.type": "CreateTime",
    },
    "MirrorMaker 3": {
        "message.downconversion.enable": "true",
        "message.format.version": "2.8-IV1",
        "message.timestamp.difference.max.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "flush.messages": "9223372036854775807",
    },
}


@pytest.mark.parametrize("tool", SENT_BY_TOOLS)
def test_what_kafkas_tools_send_is_accepted(tool: str) -> None:
    assert validate_all(SENT_BY_TOOLS[tool]) is None


def test_settings_changed_while_running_lie_over_those_of_the_start() -> None:
    settings = Settings({"log.retention.ms": "1"}).with_dynamic({"log.retention.ms": "2"})
    assert settings.integer("log.retention.ms") == 2
    found = settings.describe("log.retention.ms")
    assert found.source is Source.DYNAMIC_DEFAULT_BROKER
    assert [synonym.value for synonym in found.synonyms] == ["2", "1"]
    assert TopicConfigs(settings).policy("orders", {}).retention_ms == 2


def test_a_setting_that_is_read_at_start_cannot_change_afterwards() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.cache\.bytes is read only at start"):
        Settings().with_dynamic({"fetch.cache.bytes": "0"})


def test_a_group_config_is_found_by_name() -> None:
    assert GROUP["group.read.mode"].default == "offset"
    with pytest.raises(ConfigError, match=r"did you mean consumer\.session\.timeout\.ms"):
        find_setting(GROUP, "consumer.session.timeout", "group config")


def test_the_config_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Config().node_id = 3  # type: ignore[misc]
