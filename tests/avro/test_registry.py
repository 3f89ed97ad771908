"""Check the schema registry client: requests, cache, refusals, and secrets left out of messages."""

import json
from collections.abc import Iterator

import pytest

from korvet.avro import registry as module
from korvet.avro.decoder import Decoder, registry_of
from korvet.avro.registry import RegistryUnavailable, SchemaRegistry
from korvet.avro.schema import AvroError, Schema
from korvet.config.setting import StartError
from korvet.config.values import Settings
from tests.support.schema_registry import Registry, schema_registry

CUP = {"type": "record", "name": "Cup", "fields": [{"name": "tea", "type": "string"}]}
BYTES = b"\x08mint"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def served() -> Iterator[Registry]:
    with schema_registry() as made:
        yield made


def framed(number: int, data: bytes = BYTES) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def test_a_schema_is_requested_once(served: Registry) -> None:
    number = served.add("cups-value", CUP)
    decoder = Decoder(SchemaRegistry(served.url))
    assert decoder.unknown_ids([framed(number), b"text", None, b"\0\0"]) == {number}
    for _ in range(3):
        found = decoder.decode(framed(number))
        assert found is not None and (found.value, found.schema_id) == ({"tea": "mint"}, number)
    assert decoder.decode(b"text") is None and decoder.decode(None) is None
    assert decoder.unknown_ids([framed(number)]) == set()
    assert served.requests == [f"GET /schemas/ids/{number}"]


def test_an_unknown_id_is_requested_again_later(served: Registry) -> None:
    clock = Clock()
    client = SchemaRegistry(served.url, clock=clock)
    for _ in range(2):
        with pytest.raises(AvroError, match=f"The schema registry at {served.url} has no schema 1"):
            client.schema(1)
    assert len(served.requests) == 1
    served.add("cups-value", CUP)
    clock.now += module.ABSENT_S
    assert client.schema(1).decode(BYTES) == {"tea": "mint"}


def test_a_registry_that_is_away_gets_no_request_per_record() -> None:
    clock = Clock()
    with schema_registry() as served:
        served.add("cups-value", CUP)
        url = served.url
    client = SchemaRegistry(url, clock=clock)
    with pytest.raises(RegistryUnavailable, match=r"does not answer: .*refused"):
        client.schema(1)
    kept = client.known(2)
    assert isinstance(kept, RegistryUnavailable)
    clock.now += module.UNAVAILABLE_S
    assert client.known(2) is None


def test_the_credentials_are_sent_and_never_shown() -> None:
    with schema_registry("ann:s3cret") as served:
        number = served.add("cups-value", CUP)
        settings = Settings(
            {
                "schema.registry.url": served.url,
                "schema.registry.basic.auth.user.info": "ann:s3cret",
            }
        )
        good = registry_of(settings)
        assert good is not None and good.schema(number).decode(BYTES) == {"tea": "mint"}
        with pytest.raises(RegistryUnavailable, match="refuses the credentials") as refused:
            SchemaRegistry(served.url, "ann:wr0ng").schema(number)
        assert "wr0ng" not in str(refused.value)
    with pytest.raises(RegistryUnavailable) as away:
        SchemaRegistry(served.url, "ann:s3cret").schema(number)
    assert "s3cret" not in str(away.value)


@pytest.mark.parametrize("url", ["http://ann:pw@host", "ftp://host", "host:8081", "http://", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(StartError, match="without a password") as refused:
        SchemaRegistry(url)
    assert "ann" not in str(refused.value)


def test_a_schema_is_read_with_those_that_it_names(served: Registry) -> None:
    served.add("cup", CUP)
    order = {"type": "record", "name": "O", "fields": [{"name": "cup", "type": "Cup"}]}
    named = [{"name": "Cup", "subject": "cup", "version": 1}]
    number = served.add("orders-value", order, references=named)
    assert SchemaRegistry(served.url).schema(number).decode(BYTES) == {"cup": {"tea": "mint"}}


def test_schemas_of_other_types_and_invalid_ones_are_named(served: Registry) -> None:
    client = SchemaRegistry(served.url)
    proto = served.add("p-value", "syntax", schemaType="PROTOBUF")
    with pytest.raises(AvroError, match="schema 1 is of type PROTOBUF, not Avro"):
        client.schema(proto)
    broken = served.add("b-value", '{"type": "record"}')
    with pytest.raises(AvroError, match="schema 2: The schema is not valid"):
        client.schema(broken)
    with pytest.raises(AvroError, match="HTTP 422 for subject x: Invalid schema"):
        client.register("x", _Invalid())


class _Invalid(Schema):
    def __init__(self) -> None:
        self.text = "{"


def test_a_schema_is_registered_under_its_subject(served: Registry) -> None:
    client = SchemaRegistry(served.url)
    number = client.register("cups-value", Schema(json.dumps(CUP)))
    assert client.latest("cups-value")[0] == number == 1
    with pytest.raises(AvroError, match="has no subject other-value"):
        client.latest("other-value")


def test_a_server_that_is_no_registry_is_named(served: Registry) -> None:
    served.schemas[1] = {"schema": 7}
    with pytest.raises(RegistryUnavailable, match="does not answer as a schema registry"):
        SchemaRegistry(served.url).schema(1)


def test_the_number_of_kept_schemas_is_bounded(
    served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SCHEMAS", 2)
    client = SchemaRegistry(served.url)
    for at in range(4):
        client.schema(served.add("s", {**CUP, "name": f"Cup{at}"}))
    assert [client.known(number) is not None for number in range(1, 5)] == [
        False,
        False,
        True,
        True,
    ]
