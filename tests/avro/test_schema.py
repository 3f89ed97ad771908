"""Check Avro schemas: values to and from JSON, and that malformed bytes do not end the process."""

import io
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import msgspec
import pytest

from korvet.avro.schema import AvroError, Schema

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [
            {"name": "name", "type": "string"}, {"name": "mail", "type": ["null", "string"],
             "default": None}]}},
        {"name": "other", "type": ["null", "Customer"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hour", "type": ["null", {"type": "int", "logicalType": "time-millis"}]},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "sizes", "type": {"type": "array", "items": ["int", "string", "double"]}},
        {"name": "tags", "type": {"type": "map", "values": "float"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}  # fmt: skip
VALUE = {
    "id": 2**62,
    "customer": {"name": "änn", "mail": None},
    "other": {"name": "bo", "mail": "bo@example.com"},
    "price": "12.50",
    "at": "2026-01-31T12:00:00.250000Z",
    "day": "2026-01-31",
    "hour": "12:30:00",
    "key": "8d2a4a3e-0b5b-4a27-9a04-6a3a4b4f0b11",
    "mark": "\x00ÿ",
    "sizes": [1, "two", 3.5],
    "tags": {"a": 0.5, "b": "Infinity"},
    "state": "PAID",
}
NATIVE = {
    **VALUE,
    "price": Decimal("12.50"),
    "at": datetime(2026, 1, 31, 12, 0, 0, 250000, UTC),
    "day": date(2026, 1, 31),
    "hour": time(12, 30),
    "key": UUID(str(VALUE["key"])),
    "mark": b"\x00\xff",
    "tags": {"a": 0.5, "b": float("inf")},
}


def schema_of(found: Any) -> Schema:
    return Schema(msgspec.json.encode(found))


def written(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def test_all_types_are_json_and_back() -> None:
    schema = schema_of(ORDER)
    data = written(ORDER, NATIVE)
    assert schema.decode(data) == VALUE
    assert schema.encode(VALUE) == data


def test_a_union_takes_a_plain_value_and_one_with_the_name_of_its_branch() -> None:
    union = ["null", "string", {"type": "map", "values": "int"}, {**ORDER["fields"][1]["type"]}]  # type: ignore[index]
    schema = schema_of(union)
    for value in (None, "x", {"a": 1}, {"name": "ann", "mail": None}):
        assert schema.decode(schema.encode(value)) == value
    assert schema.decode(schema.encode({"string": "x"})) == "x"
    with pytest.raises(AvroError, match=r"1\.5 is none of null, string, map, Customer"):
        schema.encode(1.5)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({**VALUE, "price": "twelve"}, "does not fit"),
        ({**VALUE, "nmae": 1}, "shop.Order has no field 'nmae'"),
        ({"id": 1}, "does not fit"),
        ("text", "does not fit"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(AvroError, match=reason):
        schema_of(ORDER).encode(value)


@pytest.mark.parametrize("text", ["{", "nope", '{"type": "record"}', "7", '{"type": "array"}'])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(AvroError, match="The schema is not valid"):
        Schema(text)
    assert Schema("string").decode(b"\x02a") == "a"


def test_bytes_of_another_schema_are_refused() -> None:
    schema, data = schema_of(ORDER), written(ORDER, NATIVE)
    with pytest.raises(AvroError, match="too early"):
        schema.decode(data[:-1])
    with pytest.raises(AvroError, match="3 are left over"):
        schema.decode(data + b"abc")


def test_random_bytes_decode_or_are_refused() -> None:
    schema, data = schema_of(ORDER), bytearray(written(ORDER, NATIVE))
    dice = random.Random(7)
    for _ in range(3000):
        changed = bytearray(data)
        changed[dice.randrange(len(changed))] = dice.randrange(256)
        try:
            msgspec.json.encode(schema.decode(bytes(changed)))
        except AvroError as error:
            assert "\n" not in str(error)


def test_deep_values_of_a_recursive_schema_do_not_stop_the_process() -> None:
    node = {"type": "record", "name": "Node", "fields": [
        {"name": "next", "type": ["null", "Node"]}]}  # fmt: skip
    schema = schema_of(node)
    assert schema.decode(b"\x02\x02\x00") == {"next": {"next": {"next": None}}}
    with pytest.raises(AvroError, match="nested too deeply"):
        schema.decode(b"\x02" * 200_000 + b"\x00")
    # Also if another schema names it.
    with pytest.raises(AvroError, match="nested too deeply"):
        Schema('"Node"', [schema.text]).decode(b"\x02" * 200_000 + b"\x00")


def test_a_schema_may_name_others() -> None:
    money = '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}'
    for text in (
        '{"type": "record", "name": "R", "fields": [{"name": "m", "type": "Money"}]}',
        '["null", {"type": "map", "values": "Money"}]',
        '{"type": "array", "items": "Money"}',
    ):
        schema = Schema(text, [money])
        value = {"R": {"m": {"cents": 3}}, "map": {"a": {"cents": 3}}, "array": [{"cents": 3}]}
        held = next(value[name] for name in value if f'"{name}"' in text)
        assert schema.decode(schema.encode(held)) == held


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "None", "size": 0},
        {"type": "record", "name": "E", "fields": [{"name": "a", "type": "null"}]},
    ],
)
def test_an_array_of_items_without_bytes_is_refused(items: Any) -> None:
    with pytest.raises(AvroError, match="items have no bytes"):
        schema_of({"type": "array", "items": items})
