"""The REST API of a schema registry, as Confluent documents it.

Rules
- Everything here blocks: an event loop calls it in a thread.
- A schema with an id never changes: it is kept, MAX_SCHEMAS of them. An id that the registry does
  not know is asked for again after ABSENT_S. Once the registry is unavailable, ids fail at once
  for UNAVAILABLE_S.
- Redirects are not followed: they would carry the credentials to another server. The credentials
  are in no message.
"""

import base64
import ssl
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from threading import RLock
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from korvet.avro.schema import AvroError, Schema
from korvet.config.setting import StartError

TIMEOUT_S = 3.0
MAX_BYTES = 4 << 20
"""Max bytes of an answer."""
MAX_SCHEMAS = 1000
MAX_REFERENCES = 100
"""Max schemas that one names, itself or through others."""
ABSENT_S = 30.0
UNAVAILABLE_S = 5.0
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryUnavailable(AvroError):
    """The registry does not answer, or refuses all that it is asked."""


class NotInRegistry(AvroError):
    """The registry has no such schema or subject."""


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    """A schema, of each path that has one."""

    schema: str = ""
    schema_type: str = "AVRO"
    references: list[_Reference] = []
    id: int = -1


class SchemaRegistry:
    """A registry at a URL. Raises StartError for a URL that is none."""

    def __init__(
        self, url: str, user_info: str | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise StartError(
                "The schema registry must be an http: or https: URL without a password; "
                "schema.registry.basic.auth.user.info takes USER:PASSWORD."
            )
        self.url = url.rstrip("/")
        self._headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        if user_info:
            token = base64.b64encode(user_info.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=ssl.create_default_context()), _NoRedirects()
        )
        self._clock = clock
        self._lock = RLock()
        self._schemas: OrderedDict[int, Schema] = OrderedDict()
        self._failed: OrderedDict[int, tuple[float, AvroError]] = OrderedDict()
        self._unavailable: tuple[float, RegistryUnavailable] | None = None

    def known(self, schema_id: int) -> Schema | AvroError | None:
        """Return the schema or the failure that is kept; None if the registry must be asked."""
        with self._lock:
            if schema_id in self._schemas:
                return self._schemas[schema_id]
            until, error = self._failed.get(schema_id, (0.0, None))
            if error is not None and self._clock() < until:
                return error
            if self._unavailable is not None and self._clock() < self._unavailable[0]:
                return self._unavailable[1]
        return None

    def schema(self, schema_id: int) -> Schema:
        """Return the schema with that id. Raises AvroError."""
        found = self.load(schema_id)
        if isinstance(found, AvroError):
            raise found
        return found

    def load(self, schema_id: int) -> Schema | AvroError:
        """Return the schema with that id, or why there is none."""
        found = self.known(schema_id)
        if found is not None:
            return found
        try:
            answer = self._ask(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
            found = self._parsed(answer, f"schema {schema_id}")
        except AvroError as error:
            found = error
        with self._lock:
            if isinstance(found, Schema):
                self._unavailable = None
                _keep(self._schemas, schema_id, found)
            elif isinstance(found, RegistryUnavailable):
                self._unavailable = (self._clock() + UNAVAILABLE_S, found)
            else:
                _keep(self._failed, schema_id, (self._clock() + ABSENT_S, found))
        return found

    def _parsed(self, answer: _Answer, what: str) -> Schema:
        if answer.schema_type != "AVRO":
            raise AvroError(f"The registry's {what} is of type {answer.schema_type}, not Avro.")
        texts: dict[tuple[str, int], str] = {}
        self._collect(answer.references, texts)
        try:
            return Schema(answer.schema, list(texts.values()))
        except AvroError as error:
            raise AvroError(f"The registry's {what}: {error}") from None

    def _collect(self, references: list[_Reference], texts: dict[tuple[str, int], str]) -> None:
        """Read the schemas that are named, each after those that it names itself."""
        for each in references:
            version_key = (each.subject, each.version)
            if version_key in texts:
                continue
            if len(texts) >= MAX_REFERENCES:
                raise AvroError(f"The schema names more than {MAX_REFERENCES} others.")
            texts[version_key] = ""  # a schema that names itself ends here
            path = f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}"
            answer = self._ask(path, f"version {each.version} of subject {each.subject}")
            self._collect(answer.references, texts)
            del texts[version_key]
            texts[version_key] = answer.schema

    def latest(self, subject: str) -> tuple[int, Schema]:
        """Return id and schema of a subject's latest version. Raises AvroError."""
        what = f"subject {subject}"
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest", what)
        return answer.id, self._parsed(answer, what)

    def register(self, subject: str, schema: Schema) -> int:
        """Register the schema under the subject; return its id. Raises AvroError."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._ask(path, f"subject {subject}", {"schema": schema.text}).id

    def _ask(self, path: str, what: str, body: object = None) -> _Answer:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else msgspec.json.encode(body),
            self._headers if body is None else {**self._headers, "Content-Type": _MEDIA_TYPE},
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                content = response.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, what) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            reason = getattr(reason, "strerror", None) or reason
            raise RegistryUnavailable(
                f"The schema registry at {self.url} does not answer: {reason}."
            ) from None
        if len(content) > MAX_BYTES:
            raise AvroError(f"The registry's {what} has more than {MAX_BYTES >> 20} MiB.")
        try:
            return msgspec.json.decode(content, type=_Answer)
        except (ValueError, RecursionError):
            raise RegistryUnavailable(
                f"The server at {self.url} does not answer as a schema registry: check the URL."
            ) from None

    def _refusal(self, error: urllib.error.HTTPError, what: str) -> AvroError:
        if error.code == 404:
            return NotInRegistry(f"The schema registry at {self.url} has no {what}.")
        if error.code in (401, 403):
            return RegistryUnavailable(
                f"The schema registry at {self.url} refuses the credentials of "
                f"schema.registry.basic.auth.user.info (HTTP {error.code})."
            )
        reason = _message(error)
        sentence = (
            f"The schema registry at {self.url} answers HTTP {error.code} for {what}{reason}."
        )
        return AvroError(sentence) if error.code in (409, 422) else RegistryUnavailable(sentence)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises an HTTPError for a redirect."""

    def redirect_request(self, *_: object) -> None:
        return None


def _message(error: urllib.error.HTTPError) -> str:
    """Return the reason in the body of an error, with a colon before it."""
    try:
        found: Any = msgspec.json.decode(error.read(10_000))["message"]
        return ": " + " ".join(str(found).split()).rstrip(".")[:300]
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _keep(kept: OrderedDict[int, Any], schema_id: int, schema: Any) -> None:
    kept[schema_id] = schema
    while len(kept) > MAX_SCHEMAS:
        kept.popitem(last=False)
