"""Check the codecs against kio, which is generated from Kafka's message definitions.

Field values are compared by name too: two adjacent fields of one type, swapped, would still give
the same bytes in both directions.
"""

import datetime
import random
from dataclasses import fields, is_dataclass
from io import BytesIO
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from korvet.wire.layout import Message
from korvet.wire.schema import decode, encode
from tests.wire.values import CASES, CLASSES, a_message, case_id


def _kinds(cls: type[Message]) -> Any:
    return EntityType.request if cls.__message__.request else EntityType.response


def _known(cls: type[Message], version: int) -> bool:
    versions = schema_name_map[api_key_map[cls.__message__.key]]
    return _kinds(cls) in versions.get(version, {})


KNOWN = [(cls, version) for cls, version in CASES if _known(cls, version)]


def _twin(cls: type[Message], version: int) -> Any:
    module = load_payload_module(cls.__message__.key, version, _kinds(cls))
    return getattr(module, cls.__name__)


def _plain(value: Any) -> Any:
    """Convert a kio value into our types."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


WITHOUT_VERSION_0 = {76, 77, 78, 79}
"""Keys of share group APIs: Kafka 4.1 removed their version 0, a preview."""
RENAMED = {
    "generation_id": "generation_id_or_member_epoch",
    "acceptable_recovery_lag": "acceptable_recovery_lag_legacy",
}


def _named(ours: Message, name: str) -> Any:
    """Return our field for a name in kio, which drops `_ms` and has names of older versions."""
    known = ours.__struct_fields__
    return getattr(
        ours, next(each for each in (RENAMED.get(name), name, f"{name}_ms") if each in known)
    )


def _differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict):
        return [
            line
            for name, value in theirs.items()
            for line in _differences(_named(ours, name), value, f"{path}.{name}")
        ]
    if isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} and {len(theirs)} items"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [d for i, (a, b) in pairs for d in _differences(a, b, f"{path}[{i}]")]
    if theirs is None and (ours == -1 or getattr(ours, "int", None) == 0):
        return []  # kio's value for no time and for no id
    return [] if ours == theirs else [f"{path}: {ours!r} and {theirs!r}"]


@pytest.mark.parametrize(("cls", "version"), KNOWN, ids=case_id)
def test_kio_reads_what_we_write_and_writes_what_we_read(cls: type[Message], version: int) -> None:
    chance = random.Random(f"{cls.__name__} {version}")
    twin = _twin(cls, version)
    read, write = entity_reader(twin), entity_writer(twin)
    for _ in range(8):
        ours = a_message(cls, version, chance, mild=True)
        encoded = encode(ours, version)
        theirs, size = read(encoded, 0)
        assert size == len(encoded)
        assert _differences(ours, _plain(theirs)) == []
        out = BytesIO()
        write(out, theirs)
        assert decode(cls, out.getvalue(), version) == ours


@pytest.mark.parametrize("cls", CLASSES, ids=case_id)
def test_no_version_of_kafka_is_missing(cls: type[Message]) -> None:
    theirs = schema_name_map[api_key_map[cls.__message__.key]]
    newest = max(version for version, kinds in theirs.items() if _kinds(cls) in kinds)
    assert cls.__message__.versions[1] >= newest
    assert cls.__message__.versions[0] == (1 if cls.__message__.key in WITHOUT_VERSION_0 else 0)
