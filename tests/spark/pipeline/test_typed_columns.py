"""Check the columns of values: what fits has its columns, what does not has its reason."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from korvet.avro.registry import SchemaRegistry
from korvet.spark.pipeline.avro_columns import AvroById
from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.json_columns import MAX_LEVELS
from korvet.spark.pipeline.typed_columns import TypedColumns
from tests.support.schema_registry import Registry, schema_registry

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TYPE = "a field has another type than its column"
NUMBER = "a number does not fit its column"
CASE = "a name differs from a column's in case"
TWICE = "a name is twice in an object"
MORE = "more bytes after the JSON value"
DEEP = "nested deeper than 100 levels"
LONE = "half a surrogate pair, which is no letter"
UNFIT = "does not fit the Avro schema"
LEFT = "bytes are left after the Avro value"


class Columns:
    """Typed columns of one table after another batch of values."""

    def __init__(self, spark: Any, *mode: Any, widens: bool = False) -> None:
        self._spark = spark
        self._known = ""
        self.mode = mode
        self.widens = widens

    def of(self, *values: bytes | None) -> list[dict[str, Any]]:
        """Return the rows of the values, without the values."""
        rows = self._spark.createDataFrame([(each,) for each in values], "value binary").coalesce(1)
        typing = TypedColumns(self._spark, *self.mode, widens=self.widens)
        typed, self._known = typing.typed(rows, self._known)
        found = [row.asDict(recursive=True) for row in typed.collect()]
        return [
            {name.removeprefix("value_"): held for name, held in row.items() if name != "value"}
            for row in found
        ]

    def reasons(self, *values: bytes | None) -> list[str | None]:
        return [row["_corrupt"] for row in self.of(*values)]


def nested(opening: bytes, levels: int) -> bytes:
    """Return an object with a field `s` of nested lists or objects."""
    ends = {b"[": b"]", b"{": b"}"}
    return b'{"s": ' + opening * levels + b"1" + ends[opening[:1]] * levels + b"}"


JSON = {
    b'{"id": 3, "s": "x"}': None,
    b' {"id": 3} ': None,
    b'{"id": null, "other": 1}': None,
    b'{"id": 1} trailing': MORE,
    b'{"id": 1}{"id": 2}': MORE,
    b'{"id": 1}, "x": 2': MORE,
    b'{"id": 1}]': MORE,
    b'{"id": 1}\x00': MORE,
    b'{"id": 1': "no JSON",
    b"{'id': 1}": "no JSON",
    b'{"id": NaN}': "no JSON",
    b"": "no JSON",
    b"1 2": "no JSON",
    b"[1]": "no JSON object",
    b'"text"': "no JSON object",
    b'{"id": 1, "id": 2}': TWICE,
    b'{"in": {"city": "a", "city": "b"}}': TWICE,
    b'{"s": "\xff"}': "not UTF-8",
    b'{"ID": 5}': CASE,
    b'{"id": 1, "Id": 5}': CASE,
    b'{"in": {"City": "y"}}': CASE,
    '{"\u0131d": 5}'.encode(): CASE,
    '{"in": {"c\u0130ty": "y"}}'.encode(): CASE,
    b'{"of": [{"q": 1}, {"Q": 2}]}': CASE,
    b'{"id": 1.5}': NUMBER,
    b'{"id": 9223372036854775808}': NUMBER,
    b'{"of": [{"q": 1.5}]}': NUMBER,
    b'{"d": 9007199254740993}': NUMBER,
    b'{"d": 1e400}': NUMBER,
    b'{"big": 1.5}': NUMBER,
    b'{"big": 10000000000000000000000}': NUMBER,
    b'{"d": 9007199254740991}': None,
    b'{"d": 0.1, "big": 1e3}': None,
    b'{"id": "x"}': TYPE,
    b'{"id": true}': TYPE,
    b'{"in": 5}': TYPE,
    b'{"s": 1e400}': NUMBER,
    b'{"s": {"t": [-1e400]}}': NUMBER,
    b'{"s": "1e400"}': None,
    b'{"s": "\\ud800"}': LONE,
    b'{"s": "\\udc00\\ud800"}': LONE,
    b'{"s": "\\ud83d\\ude00", "id": 3}': None,
    b'{"s": "\\\\ud800"}': None,
    nested(b"[", 99): None,
    nested(b"[", 100): DEEP,
    nested(b"[", 5000): DEEP,
    nested(b'{"n":', 990): DEEP,
    b'{"s": "%b"}' % (b"[" * 200): None,
    b'{"s": [%b]}' % (b"[1]," * 200 + b"1"): None,
}


def test_each_json_value_is_marked_with_its_own_reason(spark: Any) -> None:
    columns = Columns(spark, "json")
    first = b'{"id": 1, "s": "a", "d": 1.5, "big": 1180591620717411303424, "in": {"city": "x"}, '
    assert columns.reasons(first + b'"of": [{"q": 1}]}', None) == [None, None]
    rows = columns.of(*JSON)
    assert {value: row["_corrupt"] for value, row in zip(JSON, rows, strict=True)} == JSON
    assert rows[0]["id"] == rows[1]["id"] == 3
    for row in rows:
        if row["_corrupt"] in (MORE, TWICE, "no JSON", "not UTF-8"):
            assert {held for name, held in row.items() if name != "_corrupt"} == {None}


def test_what_is_nested_deep_is_text(spark: Any) -> None:
    columns = Columns(spark, "json")
    rows = columns.of(nested(b'{"n":', 50), nested(b"[", 990), b'{"s": {}}')
    assert [row["_corrupt"] for row in rows] == [None, DEEP, None]
    held = rows[0]["s"]
    for _ in range(MAX_LEVELS - 2):
        held = held["n"]
    assert json.loads(held["n"]) == json.loads(nested(b'{"n":', 31))["s"]


def test_a_decimal_column_gets_wider_where_the_format_can(spark: Any) -> None:
    for widens, reason in ((True, None), (False, NUMBER)):
        columns = Columns(spark, "json", widens=widens)
        columns.of(b'{"big": %d}' % 2**70)
        [row] = columns.of(b'{"big": %d}' % 10**30)
        assert row == {"big": None if reason else 10**30, "_corrupt": reason}


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def record(*fields: tuple[str, Any]) -> str:
    named = [{"name": name, "type": type_} for name, type_ in fields]
    return json.dumps({"type": "record", "name": "O", "fields": named})


ORDER = record(("id", "long"), ("qty", "long"))
ITEM = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "string"}]}
NEWER = record(
    ("qty", "int"), ("id", "long"), ("note", ["null", "string"]),
    ("in", {"type": "array", "items": ITEM}),
)  # fmt: skip


def confluent(schema_id: int, *numbers: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"".join(map(zigzag, numbers))


def test_bare_avro_is_decoded_whole_or_marked(spark: Any) -> None:
    columns = Columns(spark, "avro", ORDER)
    plain = zigzag(1000) + zigzag(2000)
    rows = columns.of(plain, confluent(1, 1000, 2000), b"hello world", zigzag(1), b"", None)
    assert rows[0] == {"id": 1000, "qty": 2000, "_corrupt": None}
    assert [row["_corrupt"] for row in rows[1:]] == [LEFT, LEFT, UNFIT, UNFIT, None]
    assert {row["id"] for row in rows[1:]} == {row["qty"] for row in rows[1:]} == {None}


def test_a_length_that_the_value_does_not_have_is_marked(spark: Any) -> None:
    columns = Columns(spark, "avro", record(("s", "string")))
    assert columns.reasons(zigzag(2**31 - 20), zigzag(-5), zigzag(2**40)) == [UNFIT] * 3
    columns = Columns(
        spark, "avro", record(("s", {"type": "array", "items": "null"}), ("n", "int"))
    )
    rows = columns.of(zigzag(2) + zigzag(0) + zigzag(7), zigzag(2**30) + zigzag(0) + zigzag(7))
    assert rows == [{"n": 7, "_corrupt": None}, {"n": None, "_corrupt": UNFIT}]


def test_each_value_is_decoded_by_the_schema_of_its_id(spark: Any) -> None:
    clash = record(("id", "long"), ("ID", "long"))
    endless = record(("next", ["null", "O"]))
    deep: Any = "int"
    for n in range(60):
        deep = {"type": "record", "name": f"D{n}", "fields": [{"name": "f", "type": deep}]}
    texts = {2: NEWER, 3: record(("id", "string"), ("qty", "long")), 4: clash, 5: endless}
    texts[6] = json.dumps(deep)
    schemas = AvroById({1: ORDER, **texts})
    columns = Columns(spark, "avro", schemas)
    newer = confluent(2, 5, 6, 1, 2) + b"hi" + zigzag(1) + zigzag(1) + b"k" + zigzag(0)
    rows = columns.of(confluent(1, 1000, 2000), newer)
    assert rows == [
        {"id": 1000, "qty": 2000, "note": None, "in": None, "_corrupt": None},
        {"id": 6, "qty": 5, "note": "hi", "in": [{"a": "k"}], "_corrupt": None},
    ]
    marked = {
        zigzag(1000) + zigzag(2000): "no schema id at the start",
        b"hello world": "no schema id at the start",
        b"\0\0\0\0": "no schema id at the start",
        newer + b"!": LEFT,
        newer[:-1]: UNFIT,
        confluent(1): UNFIT,
        confluent(1, 1): UNFIT,
        confluent(4, 1, 2): "Avro fields differ only in case: id",
        confluent(6, 1): "the Avro schema has more than 50 levels",
        confluent(9, 1, 2): "no schema with id 9 was given",
    }
    assert columns.reasons(*marked) == [*marked.values()]
    [reason] = columns.reasons(confluent(5, 0))
    assert reason is not None and "recursive reference in Avro schema" in reason
    [row] = columns.of(confluent(3, 1) + b"x" + zigzag(8))
    assert (row["id"], row["qty"]) == (None, 8)
    assert row["_corrupt"] == "field id has another type than its column"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as made:
        yield made


def test_schemas_of_a_registry_are_read_with_those_that_they_name(
    spark: Any, registry: Registry
) -> None:
    registry.add("item", {**ITEM, "namespace": "n"})
    names = [{"name": "n.I", "subject": "item", "version": 1}]
    number = registry.add("o", record(("one", "n.I"), ("two", "n.I")), references=names)
    columns = Columns(spark, "avro", AvroById(registry=SchemaRegistry(registry.url)))
    value = confluent(number, 1) + b"a" + zigzag(1) + b"b"
    assert columns.of(value) == [{"one": {"a": "a"}, "two": {"a": "b"}, "_corrupt": None}]
    [reason] = columns.reasons(confluent(77, 1))
    assert reason is not None and reason.startswith("schema 77: ") and "has no schema 77" in reason


def test_a_registry_that_does_not_answer_ends_the_job(spark: Any) -> None:
    columns = Columns(spark, "avro", AvroById(registry=SchemaRegistry("http://127.0.0.1:1")))
    with pytest.raises(PipelineError, match="does not answer"):
        columns.of(confluent(1, 1, 2))


def test_avro_numbers_get_wider_where_the_format_can(spark: Any) -> None:
    narrow, wide = record(("n", "int"), ("x", "float")), record(("n", "long"), ("x", "double"))
    columns = Columns(spark, "avro", narrow)
    columns.of(b"\x02\0\0\0\0")
    columns.mode = ("avro", wide)
    with pytest.raises(PipelineError, match="value_n would get another type"):
        columns.of(b"\x02" + b"\0" * 8)
    columns.widens = True
    assert columns.of(zigzag(2**40) + b"\0" * 8) == [{"n": 2**40, "x": 0.0, "_corrupt": None}]
