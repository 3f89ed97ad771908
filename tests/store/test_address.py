"""Check the Redis URLs that are accepted, what they mean, and those that are refused."""

import re
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from redis.connection import URL_QUERY_ARGUMENT_PARSERS, parse_url

from korvet.store.address import Address, BadAddress, parse
from korvet.store.errors import StoreUnavailable
from korvet.store.sync_store import SyncStore
from tests.support.redis_servers import TestServer

CERT = Path(__file__).parent / "tls" / "cert.pem"


@pytest.mark.parametrize(
    ("url", "kind", "seeds"),
    [
        ("redis://", "single", [Address()]),
        ("redis://h:1/2", "single", [Address("h", 1, db=2)]),
        (
            "redis://me:se%3Acret@h",
            "single",
            [Address("h", username="me", password="se:cret")],
        ),
        ("unix:///tmp/s?db=3", "single", [Address(path="/tmp/s", db=3)]),
        ("redis+cluster://h:1,g:2", "cluster", [Address("h", 1), Address("g", 2)]),
        (
            "redis+cluster://:pw@h:1,g",
            "cluster",
            [Address("h", 1, password="pw"), Address("g", password="pw")],
        ),
        (
            "redis+sentinel://h,g:2/main",
            "sentinel",
            [Address("h", 26379), Address("g", 2)],
        ),
        (
            "redis+sentinel://[::1],[::2]:2/main",
            "sentinel",
            [Address("::1", 26379), Address("::2", 2)],
        ),
        (
            "redis+sentinel://me:pw@h:1/main/4",
            "sentinel",
            [Address("h", 1, db=4, username="me", password="pw")],
        ),
    ],
)
def test_a_url_is_a_deployment(url: str, kind: str, seeds: list[Address]) -> None:
    location = parse(url)
    assert location.kind == kind
    assert list(location.seeds) == seeds
    assert location.master == ("main" if kind == "sentinel" else "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h",
        "redis://H:1/2",
        "redis://h/2?db=3",
        "redis://h/nine",
        "redis://[::1]:7",
        "redis://h:0",
        "redis://me:se%3Acret@h?username=you&password=p",
        "redis://:pw@?host=g&port=9&socket_timeout=1.5&max_connections=3",
        "rediss://h?ssl_check_hostname=no",
        "unix:///tmp/a%20b?db=3",
        "unix://me:pw@/s/1",
        "unix://h:1/s",
    ],
)
def test_a_url_means_what_redis_py_takes_it_for(url: str) -> None:
    theirs = parse_url(url)  # type: ignore[no-untyped-call]
    found = parse(url).seeds[0]
    theirs.pop("connection_class", None)
    names = ("host", "port", "path", "db", "username", "password")
    asked = {name: theirs.pop(name) for name in names if name in theirs}
    theirs.pop("max_connections", None)
    assert found.options == theirs
    assert replace(found, tls=None, options={}) == Address(**asked)


def test_sentinels_have_a_separate_password() -> None:
    location = parse("redis+sentinel://:pw@h/main?sentinel_username=s&sentinel_password=t")
    assert (location.sentinel_username, location.sentinel_password) == ("s", "t")
    assert location.seeds[0].password == "pw"


def test_a_quoted_value_in_a_query_is_decoded_in_every_kind_of_url() -> None:
    for url in ("redis://h", "redis+cluster://h", "redis+sentinel://h/main"):
        (seed,) = parse(f"{url}?ssl_password=a%26b%25+c").seeds
        assert seed.options == {"ssl_password": "a&b% c"}


def test_a_secure_url_verifies_unless_its_query_disables_it() -> None:
    strict = parse("rediss://h").seeds[0].tls
    assert strict is not None
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert strict.check_hostname
    lax = parse("rediss+cluster://h,g?ssl_cert_reqs=none").seeds[1].tls
    assert lax is not None
    assert lax.verify_mode is ssl.CERT_NONE
    assert parse("redis://h").seeds[0].tls is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://h",
        "redis+nothing://h",
        "unix+cluster:///s",
        "redis+sentinel://h",
        "redis+cluster://",
        "redis://h:port",
        "redis+sentinel://[::1/m",
        "redis+cluster://[::1",
    ],
)
def test_a_url_that_names_no_redis_is_refused(url: str) -> None:
    with pytest.raises(BadAddress):
        parse(url)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("ssl_cert_reqs=always", "must be none, optional or required, not 'always'"),
        ("ssl_ca_certs=/no/such.pem", "ssl_ca_certs=/no/such.pem in the Redis URL: No such file"),
        (f"ssl_ca_certs={__file__}", "test_address.py in the Redis URL: not a usable certificate"),
        (f"ssl_certfile={CERT}&ssl_keyfile=/k", "ssl_keyfile=/k in the Redis URL: No such file"),
        ("ssl_ca_cert=/a.pem", "unknown option 'ssl_ca_cert' (known: ssl_ca_certs, "),
        ("ssl_ca_data=x", "ssl_ca_data in the Redis URL: not a usable certificate"),
        ("ssl_ca_data=%C3%A9", "ASCII"),
        ("ssl_certfile=%00", "embedded null byte in the Redis URL"),
        ("ssl_ciphers=none", "unknown ssl_ciphers 'none' in the Redis URL"),
        ("ssl_validate_ocsp=true", "unknown option 'ssl_validate_ocsp'"),
        ("ssl=true", "unknown option 'ssl' "),
    ],
)
@pytest.mark.parametrize("scheme", ["rediss://h", "rediss+sentinel://h/m", "rediss+cluster://h"])
def test_what_cannot_be_used_under_tls_is_named(scheme: str, query: str, sentence: str) -> None:
    with pytest.raises(BadAddress, match=re.escape(sentence)):
        parse(f"{scheme}?{query}")


@pytest.mark.parametrize(
    "query",
    [
        "decode_responses=true",
        "encoding=latin-1",
        "protocol=3",
        "legacy_responses=no",
        "lib_name=x",
        "virtual_host=v",
        "timeout=3",
        "timeout=3s",
        "retry_on_timeout=true",
        "retry_on_error=a",
        "max_connections=1",
        "socket_read_size=0",
        "single_connection=yes",
    ],
)
@pytest.mark.parametrize(
    "url", ["redis://h", "rediss://h", "redis+sentinel://h/m", "redis+cluster://h", "unix:///s"]
)
def test_options_for_other_clients_of_the_same_url_are_ignored(url: str, query: str) -> None:
    (seed,) = parse(f"{url}?{query}&client_name=c").seeds
    assert seed.options == {"client_name": "c"}
    with SyncStore.connect(f"{url}?{query}"):
        pass


def test_ciphers_are_chosen_as_the_url_says() -> None:
    tls = parse("rediss://h?ssl_ciphers=ECDHE-RSA-AES256-GCM-SHA384").seeds[0].tls
    assert tls is not None
    assert {row["name"] for row in tls.get_ciphers() if row["protocol"] != "TLSv1.3"} == {
        "ECDHE-RSA-AES256-GCM-SHA384"
    }


@pytest.mark.skipif(
    "ssl_min_version" not in URL_QUERY_ARGUMENT_PARSERS, reason="an older redis-py knows none"
)
def test_the_least_version_of_tls_is_what_the_url_says() -> None:
    tls = parse("rediss://h?ssl_min_version=772").seeds[0].tls
    assert tls is not None and tls.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_plain_connection_ignores_options_of_tls() -> None:
    url = "redis+sentinel://127.0.0.1:1/m?ssl_check_hostname=no"
    with SyncStore.connect(url) as store, pytest.raises(StoreUnavailable, match="no Sentinel"):
        store.command("PING")


def test_replies_are_bytes_whatever_decoding_the_url_requests(redis_server: TestServer) -> None:
    query = "decode_responses=true&protocol=3&max_connections=1&retry_on_error=a"
    with SyncStore.connect(f"{redis_server.url}?{query}") as store:
        store.command("DEL", "h")
        store.command("HSET", "h", "a", "b")
        assert store.command("HGETALL", "h") == [b"a", b"b"]


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(parse("redis://:secret@h"))
    assert "secret" not in str(parse("redis+cluster://:secret@h:1,g:2"))


@pytest.mark.parametrize(
    "url",
    [
        "me:s3cret@h:1",
        "redis:/me:s3cret@h",
        "redis://me:s3cret/x@h:1",
        "redis+cluster://me:s3cret/x@h:1",
        "redis+sentinel://me:s3cret#x@h:1/main",
        "redis://me:s3cret\u2100@h",
    ],
)
def test_the_error_of_a_wrong_url_has_nothing_of_its_password(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(url)
    assert "s3cret" not in str(caught.value)
