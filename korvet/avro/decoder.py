"""Keys and values of records: which are Avro, their schemas, their values as JSON.

The wire format of Confluent's serializers begins with a zero byte and the schema's id in four
bytes. Bare Avro has neither: its schema is a file.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import msgspec

from korvet.avro.registry import SchemaRegistry
from korvet.avro.schema import AvroError, Schema
from korvet.config.setting import StartError
from korvet.config.values import Settings

MAGIC = 0
PREFIX_BYTES = 5


class Decoded(msgspec.Struct, frozen=True):
    """A decoded key or value; `schema_id` is -1 for bare Avro."""

    value: Any
    schema_id: int

    @property
    def json(self) -> bytes:
        """The value as JSON."""
        return msgspec.json.encode(self.value)


@dataclass(eq=False, repr=False)
class Decoder:
    """Decodes the keys or the values of a topic, by one schema or those of the registry.

    In place of a schema it may have the reason why there is none. With `asks=False`, decoding uses
    only schemas of the registry that are known.
    """

    registry: SchemaRegistry | None
    schema: Schema | AvroError | None = None
    _: KW_ONLY
    asks: bool = True

    def id_of(self, data: bytes | None) -> int | None:
        """Return the schema's id that the bytes begin with; None without one."""
        if self.registry is None or self.schema is not None or not data:
            return None
        if data[0] != MAGIC or len(data) < PREFIX_BYTES:
            return None
        return int.from_bytes(data[1:PREFIX_BYTES], "big")

    def decode(self, data: bytes | None) -> Decoded | None:
        """Return the decoded bytes; None for bytes that are not marked as Avro.

        Asks the registry for a schema that is not known yet. Raises AvroError.
        """
        if self.schema is not None and data is not None:
            return Decoded(_usable(self.schema).decode(data), -1)
        schema_id = self.id_of(data)
        if schema_id is None or self.registry is None or data is None:
            return None
        find = self.registry.load if self.asks else self.registry.known
        schema = _usable(find(schema_id) or AvroError(f"Schema {schema_id} is not read yet."))
        return Decoded(schema.decode(data[PREFIX_BYTES:]), schema_id)

    def unknown_ids(self, parts: Iterable[bytes | None]) -> set[int]:
        """Return the ids in the bytes that the registry must be asked for."""
        ids = {found for data in parts if (found := self.id_of(data)) is not None}
        registry = self.registry
        return {each for each in ids if registry is not None and registry.known(each) is None}


def _usable(schema: Schema | AvroError) -> Schema:
    if isinstance(schema, AvroError):
        raise schema
    return schema


class Encoder:
    """Encodes keys or values by one schema, with the id of the registry if there is one."""

    def __init__(self, schema: Schema, schema_id: int | None = None) -> None:
        self._schema = schema
        self._prefix = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")

    def encode(self, text: bytes) -> bytes:
        """Return the bytes of the value in JSON. Raises AvroError."""
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise AvroError(f"It is not JSON: {error}.") from None
        return self._prefix + self._schema.encode(value)


def registry_of(settings: Settings, url: str | None = None) -> SchemaRegistry | None:
    """Return the registry of the settings, or the one at `url`. Raises StartError."""
    where = url or settings.text_of("schema.registry.url")
    if not where:
        return None
    return SchemaRegistry(where, settings.text_of("schema.registry.basic.auth.user.info"))


def read_schema(path: Path) -> Schema:
    """Return the schema in a file. Raises StartError."""
    try:
        return Schema(path.read_bytes())
    except OSError as error:
        raise StartError(f"The schema {path} cannot be read: {error.strerror}.") from None
    except AvroError as error:
        raise StartError(f"{path}: {error}") from None
