"""Avro in `korvet consume` and `korvet produce`: keys and values as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from korvet.avro.decoder import Decoded, Decoder, Encoder, read_schema, registry_of
from korvet.avro.registry import NotInRegistry, RegistryUnavailable, SchemaRegistry
from korvet.avro.schema import AvroError, require_fastavro
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.config.setting import StartError
from korvet.library import record_lines
from korvet.library.values import Record, StoredRecord

RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="Schema registry: Avro begins with the id of its schema, as Confluent's clients "
        "write it.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class AvroOptions(o.Options):
    """The options that say which keys and values are Avro."""

    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="The values are Avro of this schema.",
            show_default=False,
        ),
    ] = None
    key_schema: Annotated[
        Path | None,
        typer.Option(
            "--key-schema",
            metavar="FILE",
            help="The keys are Avro of this schema.",
            show_default=False,
        ),
    ] = None
    registry: RegistryUrl = None

    def reader(self, target: o.Target) -> "AvroReader | None":
        """Return what decodes the records; None without a schema and a registry."""
        found = registry_of(target.settings, self.registry)
        paths = self.key_schema, self.schema
        if found is None and paths == (None, None):
            return None
        require_fastavro()
        return AvroReader(
            *(Decoder(found, None if path is None else read_schema(path)) for path in paths)
        )

    def encoders(self, topic: str, target: o.Target) -> Mapping[str, Encoder]:
        """Return the encoders of `key` and `value`, those that are Avro.

        With a registry, the schema in a file is registered as the subject's, such as `TOPIC-value`;
        without a file it is the subject's latest one. Raises StartError.
        """
        paths = {"key": self.key_schema, "value": self.schema}
        if self.registry is None and not any(paths.values()):
            return {}
        require_fastavro()
        client = registry_of(target.settings, self.registry) if self.registry else None
        found = {}
        for part, path in paths.items():
            try:
                if path is None and client is not None:
                    schema_encoder = _latest(client, f"{topic}-{part}", is_required=part == "value")
                elif path is not None:
                    schema = read_schema(path)
                    number = client.register(f"{topic}-{part}", schema) if client else None
                    schema_encoder = Encoder(schema, number)
                else:
                    schema_encoder = None
            except AvroError as error:
                raise StartError(str(error)) from None
            if schema_encoder is not None:
                found[part] = schema_encoder
        return found


class AvroReader:
    """Makes JSON of the keys and values that are Avro."""

    def __init__(self, key: Decoder, value: Decoder) -> None:
        self._key = key
        self._value = value
        self._said: set[str] = set()

    @property
    def has_failed(self) -> bool:
        """Return whether a value could not be decoded."""
        return bool(self._said)

    def matches(self, record: StoredRecord, wanted: bytes) -> bool:
        """Return whether the record has that key: its bytes, its text, or its JSON."""
        found = self._decoded(record.key, is_key=True)
        if found is None:
            return record.key == wanted
        return wanted in (record.key, found.json, str(found.value).encode())

    def texts(self, record: StoredRecord) -> StoredRecord:
        """Return the record with JSON in place of Avro; hex where it cannot be decoded."""

        def text(data: bytes | None, *, is_key: bool) -> bytes | None:
            found = self._decoded(data, is_key=is_key)
            if found is not None:
                return found.json
            return data.hex().encode() if data and self._is_avro(data, is_key=is_key) else data

        key, value = text(record.key, is_key=True), text(record.value, is_key=False)
        return msgspec.structs.replace(record, key=key, value=value)

    def to_json(self, record: StoredRecord) -> bytes:
        """Return the line of JSON, in which decoded keys and values are values of JSON."""
        parts = {
            name: found.value
            for name, data in (("key", record.key), ("value", record.value))
            if (found := self._decoded(data, is_key=name == "key")) is not None
        }
        return record_lines.to_json(record, parts)

    def _is_avro(self, data: bytes, *, is_key: bool) -> bool:
        """Return whether bytes that cannot be decoded are Avro: a key may only look like it."""
        decoder = self._key if is_key else self._value
        return decoder.schema is not None or (not is_key and decoder.id_of(data) is not None)

    def _decoded(self, data: bytes | None, *, is_key: bool) -> Decoded | None:
        decoder = self._key if is_key else self._value
        try:
            return decoder.decode(data)
        except AvroError as error:
            if isinstance(error, RegistryUnavailable) or (
                data and self._is_avro(data, is_key=is_key)
            ):
                self._say(str(error))
            return None

    def _say(self, sentence: str) -> None:
        if sentence not in self._said and len(self._said) < 100:
            self._said.add(sentence)
            table_output.note(sentence)


def _latest(client: SchemaRegistry, subject: str, *, is_required: bool) -> Encoder | None:
    try:
        number, schema = client.latest(subject)
    except NotInRegistry as error:
        if is_required:
            raise NotInRegistry(f"{error} Name a schema with --schema FILE.") from None
        return None
    return Encoder(schema, number)


def encoding(
    encoder_of: Mapping[str, Encoder], number: Callable[[], int]
) -> Callable[[Record], Record]:
    """Return a function that encodes a record's key and value; `number` is that of its line."""

    def encode(record: Record) -> Record:
        changed = {}
        for part, encoder in encoder_of.items():
            value = getattr(record, part)
            try:
                changed[part] = None if value is None else encoder.encode(value)
            except AvroError as error:
                raise StartError(
                    f"Line {number()} has a {part} that is not Avro: {error}"
                ) from None
        return msgspec.structs.replace(record, **changed)

    return encode
