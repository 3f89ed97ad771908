"""A schema of Avro: bytes to values of JSON and back.

Rules
- Values are plain JSON: no branch names of unions. `bytes` and `fixed` are text of one character
  per byte, as in Avro's JSON encoding; decimals are text; dates and times are ISO 8601.
- To encode, the first branch of a union that takes the value is used; `{"BRANCH": value}`, as in
  Avro's JSON encoding, names one.
- Bytes of clients must not stop the process. A recursive schema is read by fastavro's reader in
  Python, which raises RecursionError where the compiled one overflows the stack. An array whose
  items have no bytes is refused: a count of a few bytes would fill the memory.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from korvet.config.setting import StartError

MISSING = "Avro needs the package fastavro: install korvet[avro]."
_FIELD = "value"
_PARSERS: dict[str, Any] = {
    "date": date, "timestamp": datetime, "local-timestamp": datetime, "time": time
}  # fmt: skip
"""The types whose text in JSON is ISO 8601, without the unit at the end."""
_MOMENTS = (int, date, datetime, time)
_TAKEN: dict[str, Any] = {
    "null": type(None), "boolean": bool, "int": _MOMENTS, "long": _MOMENTS, "float": float,
    "double": float, "string": str, "bytes": (bytes, Decimal), "fixed": (bytes, Decimal),
}  # fmt: skip


class AvroError(Exception):
    """Bytes or a value that do not fit; the message is a sentence."""


def require_fastavro() -> None:
    """Raise StartError if the package is not installed."""
    try:
        import fastavro  # noqa: F401
    except ImportError:
        raise StartError(MISSING) from None


class Schema:
    """A parsed schema. Raises AvroError for text that is none.

    `references` are the texts of schemas that it names, each after those that it names itself.
    """

    def __init__(self, text: str | bytes, references: Sequence[str] = ()) -> None:
        try:
            import fastavro
        except ImportError:
            raise AvroError(MISSING) from None

        self.text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        self.references = tuple(references)
        self._named: dict[str, Any] = {}
        try:
            for each in references:
                fastavro.parse_schema(_json(each), self._named)
            # A record of one field has the bytes of the field. The library finds named types only
            # from a record.
            fields = [{"name": _FIELD, "type": _json(self.text)}]
            self._record: Any = fastavro.parse_schema(
                {"type": "record", "name": "KorvetValue", "fields": fields}, self._named
            )
        except Exception as error:  # the library raises many types
            raise AvroError(f"The schema is not valid: {_reason(error)}.") from None
        visitor = _TypeVisitor(self._named)
        visitor.visit(self._record, ())
        self._is_recursive = visitor.is_recursive

    def decode(self, data: bytes) -> Any:
        """Return the value as plain JSON values. Raises AvroError."""
        import fastavro

        read = fastavro.schemaless_reader
        if self._is_recursive:
            from fastavro._read_py import schemaless_reader as read
        file = BytesIO(data)
        try:
            found = _plain(read(file, self._record, None))[_FIELD]
        except Exception as error:  # the library raises many types
            raise AvroError(f"The bytes are not of the schema: {_reason(error)}.") from None
        if file.tell() != len(data):
            raise AvroError(
                f"The bytes are not of the schema: {len(data) - file.tell()} are left over."
            )
        return found

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value of JSON. Raises AvroError."""
        import fastavro

        file = BytesIO()
        try:
            native = self._native({_FIELD: value}, self._record)
            fastavro.schemaless_writer(file, self._record, native)
        except Exception as error:  # the library raises many types
            raise AvroError(f"The value does not fit the schema: {_reason(error)}.") from None
        return file.getvalue()

    def _native(self, value: Any, schema: Any) -> Any:
        """Return the value of JSON as the library takes it. Raises ValueError."""
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema, list):
            return self._of_union(value, schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._native(value, kind)
        if kind == "array" and isinstance(value, list):
            return [self._native(each, schema["items"]) for each in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._native(item, schema["values"]) for name, item in value.items()}
        if kind in ("record", "error") and isinstance(value, dict):
            return self._of_record(value, schema)
        found = _of_logical(value, schema)
        if not _fits(found, schema):
            raise ValueError(f"{_shown(value)} is not of type {_name_of(schema)}")
        return found

    def _of_record(self, value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
        fields = {field["name"]: field for field in schema["fields"]}
        for name in value:
            if name not in fields:
                raise ValueError(f"{schema['name']} has no field {name!r}")
        for name, field in fields.items():
            if name not in value and "default" not in field:
                raise ValueError(f"field {name!r} of {schema['name']} is missing")
        return {name: self._native(item, fields[name]["type"]) for name, item in value.items()}

    def _of_union(self, value: Any, branches: Sequence[Any]) -> Any:
        for branch in branches:
            with suppress(ValueError, ArithmeticError):
                return self._native(value, branch)
        if isinstance(value, dict) and len(value) == 1:
            (name,) = value
            for branch in branches:
                if name == _name_of(branch):
                    return self._native(value[name], branch)
        shown = ", ".join(_name_of(branch) for branch in branches)
        raise ValueError(f"{_shown(value)} is none of {shown}")


def inline(text: str, references: Sequence[str]) -> str:
    """Return a schema's text with the schemas that it names, each where it is named first."""
    if not references:
        return msgspec.json.encode(_json(text)).decode()
    from fastavro.schema import load_schema_ordered

    with TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.avsc") for number in range(len(references) + 1)]
        for path, each in zip(paths, [*references, text], strict=True):
            path.write_text(each)
        found = load_schema_ordered([str(path) for path in paths], _write_hint=False)
    return msgspec.json.encode(found).decode()


class _TypeVisitor:
    """Visits the types of a schema. Raises AvroError for an array of items without bytes."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._visited: set[str] = set()
        self.is_recursive = False

    def visit(self, schema: Any, inside: tuple[str, ...]) -> None:
        """Visit a type, which is inside of those named types."""
        if isinstance(schema, str):
            self._visit_named(schema, inside)
        elif isinstance(schema, list):
            for branch in schema:
                self.visit(branch, inside)
        elif schema["type"] in ("record", "error"):
            for field in schema["fields"]:
                self.visit(field["type"], (*inside, schema["name"]))
            self._visited.add(schema["name"])
        elif schema["type"] == "array":
            if self._is_empty(schema["items"], ()):
                raise AvroError("The schema has an array whose items have no bytes: not read.")
            self.visit(schema["items"], inside)
        else:
            self.visit(schema.get("values", schema["type"]), inside)

    def _visit_named(self, name: str, inside: tuple[str, ...]) -> None:
        if name in inside:
            self.is_recursive = True
        elif name in self._named and name not in self._visited:
            self.visit(self._named[name], inside)

    def _is_empty(self, schema: Any, inside: tuple[str, ...]) -> bool:
        """Return whether values of the type have no bytes."""
        if isinstance(schema, list):
            return False
        if isinstance(schema, str):
            known = self._named.get(schema)
            return schema == "null" if known is None else self._is_empty(known, inside)
        kind = schema["type"]
        if kind == "fixed":
            return bool(schema["size"] == 0)
        if kind in ("record", "error"):
            inner = (*inside, schema["name"])
            return schema["name"] in inside or all(
                self._is_empty(field["type"], inner) for field in schema["fields"]
            )
        return kind == "null" or (isinstance(kind, dict) and self._is_empty(kind, inside))


def _json(text: str) -> Any:
    """Return the schema in the text: JSON, or the bare name of a primitive type."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text.strip().isidentifier():
            return text.strip()
        raise ValueError(f"it is not JSON ({error})") from None


def _plain(value: Any) -> Any:
    """Return what the library read as values of JSON."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return msgspec.to_builtins(value)  # dates, times, decimals, UUIDs


def _of_logical(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value of a primitive or logical type as the library takes it."""
    kind, logical = schema["type"], str(schema.get("logicalType", ""))
    if logical == "decimal" and isinstance(value, str | int | float):
        return Decimal(str(value))
    if not isinstance(value, str):
        return float(value) if kind in ("float", "double") and type(value) is int else value
    if kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    if kind in ("float", "double"):
        return float(value)
    parser = _PARSERS.get(logical.rpartition("-")[0] or logical)
    return value if parser is None or kind == "string" else parser.fromisoformat(value)


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether the library takes the value as one of a primitive or logical type."""
    kind = schema["type"]
    if kind == "enum":
        return value in schema["symbols"]
    if isinstance(value, bool) or kind in ("array", "map", "record", "error"):
        return kind == "boolean" and isinstance(value, bool)
    return isinstance(value, _TAKEN[kind])


def _name_of(branch: Any) -> str:
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


def _reason(error: Exception) -> str:
    """Return the reason on one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, EOFError | IndexError):
        return "they end too early, or choose a branch or symbol that it does not have"
    text = " ".join(str(error).split()).rstrip(".")[:300]
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text
