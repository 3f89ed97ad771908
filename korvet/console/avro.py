"""Avro in the console: the decoders of a topic, and the schemas that a page needs.

Rules
- A page decodes with the schemas that are known. Before, a thread asks the registry for the
  others: at most MAX_ASKED ids of a read, and no further one after MAX_SECONDS.
- A registry that is away, and a schema that is none, are a sentence below the bytes in hex.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from korvet.avro.decoder import Decoded, Decoder, read_schema, registry_of
from korvet.avro.registry import RegistryUnavailable, SchemaRegistry
from korvet.avro.schema import AvroError, Schema
from korvet.config.setting import StartError
from korvet.config.values import Settings
from korvet.console.shown import Decode
from korvet.library.values import StoredRecord

MAX_ASKED = 20
MAX_SECONDS = 2.0
UNSET = (
    "There is no schema for it: set schema.registry.url, or put schemas into avro.schema.directory."
)


class ConsoleAvro:
    """The schemas of the console's settings."""

    def __init__(self, settings: Settings) -> None:
        self._registry: SchemaRegistry | None = None
        self._wrong: AvroError | None = None
        directory = settings.text_of("avro.schema.directory")
        self._directory = Path(directory) if directory else None
        self._files: dict[Path, tuple[int, Schema | AvroError]] = {}
        try:
            self._registry = registry_of(settings)
        except StartError as error:
            self._wrong = AvroError(str(error))

    def of(self, topic: str) -> "TopicAvro":
        """Return the decoders of a topic's keys and values."""
        return TopicAvro(self._decoder(topic, "key"), self._decoder(topic, "value"), self._wrong)

    def _decoder(self, topic: str, part: str) -> Decoder:
        return Decoder(self._registry, self._file(f"{topic}-{part}.avsc"), asks=False)

    def _file(self, name: str) -> Schema | AvroError | None:
        """Return the schema in a file of the directory, None without the file."""
        if self._directory is None:
            return None
        path = self._directory / name
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return None
        at, decode = self._files.get(path, (-1, AvroError("")))
        if at != changed:
            try:
                decode = read_schema(path)
            except StartError as error:
                decode = AvroError(str(error))
            self._files[path] = (changed, decode)
        return decode


class TopicAvro:
    """Decodes the keys and values of one topic."""

    def __init__(self, key: Decoder, value: Decoder, wrong: AvroError | None) -> None:
        self.key = key
        self.value = value
        self._wrong = wrong

    async def prepare(self, records: Sequence[StoredRecord]) -> None:
        """Ask the registry for the schemas of records that are not known yet."""
        ids = self.key.unknown_ids(row.key for row in records)
        ids |= self.value.unknown_ids(row.value for row in records)
        if ids:
            await asyncio.to_thread(self._ask, sorted(ids)[:MAX_ASKED])

    def _ask(self, ids: Sequence[int]) -> None:
        until = monotonic() + MAX_SECONDS
        for schema_id in ids:
            if self.key.registry is not None and monotonic() < until:
                self.key.registry.load(schema_id)

    def decode_key(self, how: str) -> Decode:
        """Return the function that decodes keys. `auto` takes bytes that are not of their schema
        as other bytes: a key of eight bytes may begin as Avro does."""

        def decode(data: bytes) -> Decoded | None:
            try:
                return self._checked(self.key, data, how)
            except RegistryUnavailable:
                raise
            except AvroError:
                if how == "auto" and self.key.schema is None:
                    return None
                raise

        return decode

    def decode_value(self, how: str) -> Decode:
        """Return the function that decodes values."""
        return lambda data: self._checked(self.value, data, how)

    def _checked(self, decoder: Decoder, data: bytes, how: str) -> Decoded | None:
        """Return the decoded bytes. Raises AvroError, for `avro` also without any schema."""
        if how == "avro" and decoder.registry is None and decoder.schema is None:
            raise self._wrong or AvroError(UNSET)
        return decoder.decode(data)

    def has_text(self, key: bytes | None, wanted: str) -> bool:
        """Return whether the key is Avro with that text, or that JSON."""
        decode = self.decode(key, is_key=True)
        return decode is not None and wanted in (decode.value, decode.json.decode())

    def decode(self, data: bytes | None, *, is_key: bool = False) -> Decoded | None:
        """Return the decoded bytes; None if they are not Avro or cannot be decoded."""
        try:
            return (self.key if is_key else self.value).decode(data)
        except AvroError:
            return None
