"""Check listeners: syntax, refusals, and the settings of one listener."""

from pathlib import Path

import pytest

from korvet.config.broker_config import ConfigError, load
from korvet.config.listeners import Address, Listener

SETS = ["listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL"]

WRITTEN = [
    ("h:1", "", [Listener("PLAINTEXT", "PLAINTEXT", Address("h", 1))]),
    ("PLAINTEXT://h:1", "", [Listener("PLAINTEXT", "PLAINTEXT", Address("h", 1))]),
    ("ssl://[::1]:0", "", [Listener("SSL", "SSL", Address("::1", 0))]),
    (
        "SASL_PLAINTEXT://:1",
        "",
        [Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT", Address("0.0.0.0", 1))],
    ),
    (
        "h:1, OUTSIDE://h:2,INSIDE://h:3",
        "outside://public:9, a:8",
        [
            Listener("PLAINTEXT", "PLAINTEXT", Address("h", 1), Address("a", 8)),
            Listener("OUTSIDE", "SASL_SSL", Address("h", 2), Address("public", 9)),
            Listener("INSIDE", "PLAINTEXT", Address("h", 3)),
        ],
    ),
    ("SSL://h:1", "a:2", [Listener("SSL", "SSL", Address("h", 1), Address("a", 2))]),
]


@pytest.mark.parametrize(("listen", "advertise", "listeners"), WRITTEN)
def test_listeners_have_name_protocol_address_and_advertised_address(
    listen: str, advertise: str, listeners: list[Listener]
) -> None:
    options = {"listen": listen, "advertise": advertise or None}
    assert load(options, sets=SETS, environ={}).listeners == tuple(listeners)
    sets = [f"listeners={listen}", *([f"advertised.listeners={advertise}"] if advertise else [])]
    assert load({}, sets=[*SETS, *sets], environ={}).listeners == tuple(listeners)


REFUSED = [
    ("h:1,h:2", "", "--listen has two listeners named PLAINTEXT: write NAME://HOST:PORT, and set"),
    ("h:1,SSL://h:1", "", "Two addresses of --listen are h:1: use different ones."),
    (
        "TLS://h:1",
        "",
        "TLS is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL: use one, or set",
    ),
    ("SSL://h", "", "--listen must be HOST:PORT"),
    ("a b://h:1", "", "--listen must be [PROTOCOL://]HOST:PORT, not 'a b://h:1'"),
    ("h:1,", "", "--listen must be [PROTOCOL://]HOST:PORT, not 'h:1,'"),
    ("", "", "--listen must be [PROTOCOL://]HOST:PORT, not ''"),
    ("h:1", "SSL://a:1", "--advertise: there is no listener SSL: write NAME://HOST:PORT with a"),
    ("SSL://h:1,INSIDE://h:2", "a:1", "--advertise: there is no listener PLAINTEXT"),
    ("h:1", "a:1,a:2", "--advertise has two addresses of listener PLAINTEXT: give one."),
    ("SSL://h:1", "SSL://:9092", "--advertise must be HOST:PORT that clients can connect to"),
]


@pytest.mark.parametrize(("listen", "advertise", "sentence"), REFUSED)
def test_listeners_that_cannot_be_served_are_refused_in_one_sentence(
    listen: str, advertise: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"listen": listen, "advertise": advertise or None}, sets=SETS, environ={})
    assert sentence in str(refused.value)


@pytest.mark.parametrize("word", ["INSIDE", "INSIDE:TLS", "a b:SSL", ":SSL"])
def test_an_unknown_protocol_of_a_name_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map must be NAME:PROTOC"):
        load({}, sets=[f"listener.security.protocol.map={word}"], environ={})


def test_a_plain_listener_is_shown_without_a_protocol_and_any_other_with_it() -> None:
    config = load({"listen": "INSIDE://h:1,OUTSIDE://h:2"}, sets=SETS, environ={})
    assert [str(listener) for listener in config.listeners] == ["h:1", "SASL_SSL://h:2"]
    assert [(each.tls, each.sasl) for each in config.listeners] == [(False, False), (True, True)]


def test_the_option_wins_over_set_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "korvet.toml"
    file.write_text('listeners = ["SSL://h:1", "h:2"]\nadvertised.listeners = "SSL://a:1"\n')
    config = load({}, file=file, environ={})
    assert [str(each) for each in config.listeners] == ["SSL://h:1", "h:2"]
    assert [each.advertised for each in config.listeners] == [Address("a", 1), None]
    sets = ["listeners=SSL://h:3"]
    assert str(load({}, file=file, sets=sets, environ={}).listeners[0]) == "SSL://h:3"
    options = {"listen": "SSL://h:4"}
    assert str(load(options, file=file, sets=sets, environ={}).listeners[0]) == "SSL://h:4"


REFUSED_SETTINGS = [
    ("listener.name.ssl.num.partitions=3", "num.partitions is not a setting of one listener"),
    ("listener.name.ssl.num.partitons=3", "did you mean num.partitions?"),
]


@pytest.mark.parametrize(("assignment", "sentence"), REFUSED_SETTINGS)
def test_a_setting_that_no_listener_has_is_refused(assignment: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"listen": "SSL://h:1"}, sets=[assignment], environ={})
    assert sentence in str(refused.value)
