"""The user of an HTTP request, the user's rights, and calls of Kafka's APIs for the user.

Rules
- A change of topics, groups, users or rules is the request of Kafka's API, handled as from a
  client: the same table of rights, the same checks, the same audit.
- Where security is on, nothing but the sign-in page is served before the sign-in.
- Without security, clients of other machines may read, and change nothing unless
  `console.remote.write` is true.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request

from korvet import apis
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker import authorization
from korvet.broker.interceptors import SENTENCE
from korvet.console.services import ConsoleServices
from korvet.console.sessions import ConsoleSession
from korvet.context import Context
from korvet.library.values import Fetched, Record, StoredRecord
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.security.quotas import CONSUMER_BYTES
from korvet.security.session import ANONYMOUS, Principal, Session
from korvet.wire.schema import Message

S = TypeVar("S")
T = TypeVar("T")
CLIENT_ID = "korvet-console"
LISTENER = "CONSOLE"
MAX_BODY = 2 << 20
"""Max bytes of a request: a form with a produced record, or records as JSON."""
MAX_PAGE = 200
"""Max rows of a list on a page."""
MAX_SORTED = 500
"""Max rows that are read to sort a list."""
_ONCE = ("done", "mark", "page", "cursor")
"""Parameters that a link to another view of the page leaves out."""
MENU = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/scripts", "Scripts"),
    ("/users", "Security"),
)
_SECTIONS = {"/create-topic": "/topics", "/acls": "/users", "/quotas": "/users"}
_FETCH = 1
_JSON = re.compile(r"application/(vnd\.kafka\.((json|binary)\.)?v2\+)?json")
_CODES = {401: 40101, 403: 40301, 429: 42901}
NO_TOPIC, NO_PARTITION = 40401, 40402
_REFUSALS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, NO_TOPIC),
    ErrorCode.UNKNOWN_TOPIC_ID: (404, NO_TOPIC),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, 404),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, 42901),
}
"""HTTP status and code of errors that have their own."""


class PageError(Exception):
    """A request that fails: HTTP status, a sentence, and the code of Confluent's REST proxy."""

    def __init__(self, status: int, sentence: str, code: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code or _CODES.get(status, status)


def _field(row: Any, path: str) -> tuple[bool, Any] | None:
    """Return the sort key that a field of a row is; None without the field."""
    for name in path.split("."):
        if isinstance(row, msgspec.Struct):
            row = getattr(row, name, None) if name in row.__struct_fields__ else None
        elif isinstance(row, tuple) and name.isdigit() and int(name) < len(row):
            row = row[int(name)]
        else:
            return None
    if row is None:
        return None
    return (False, row) if isinstance(row, int | float) else (True, str(row).lower())


class Visit:
    """A request for a page, with the rights of its user."""

    def __init__(self, console: ConsoleServices, request: Request, session: ConsoleSession) -> None:
        self.console = console
        self.services = console.services
        self.log = console.log
        self.request = request
        self.session = session
        self.host = request.client.host if request.client else "127.0.0.1"
        principal = Principal("User", session.user) if session.user else ANONYMOUS
        self._client = Session(self.host, principal, LISTENER)
        self.form: dict[str, str] = {}
        self.is_refused = False
        """Whether the page is shown below the reason of a refusal: numbers are the defaults."""

    @property
    def path(self) -> dict[str, str]:
        """The parameters of the path."""
        return self.request.path_params

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int, maximum: int) -> int:
        """Return a parameter as a number from 0 to `maximum`. Raises PageError."""
        text = (not self.is_refused and self.query(name)) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise PageError(400, f"{name} must be a number, not {text!r}.")
        return min(int(text), maximum)

    def ordered(self, rows: Sequence[T], table: str = "") -> Sequence[T]:
        """Return rows in the order of the query's `sort`: a field, after - for descending.

        Rows without the field are last. A page with several tables has a parameter for each.
        """
        name = self.query(f"sort.{table}" if table else "sort")
        field = name.removeprefix("-")
        if not field:
            return rows
        known, unknown = [], []
        for row in rows:
            key = _field(row, field)
            if key is None:
                unknown.append(row)
            else:
                known.append((key, row))
        known.sort(key=lambda each: each[0], reverse=name != field)
        return [row for _, row in known] + unknown

    def link(self, **changes: object) -> str:
        """Return the query of this page with changes."""
        kept = {k: v for k, v in self.request.query_params.items() if k not in _ONCE}
        return "?" + urlencode({**kept, **{k: v for k, v in changes.items() if v != ""}})

    def page_of(self, rows: Sequence[T], size: int) -> tuple[Sequence[T], int, int]:
        """Return the rows of the query's `page`, its number, and the number of pages.

        The query's `size` is the number of rows on a page.
        """
        size = max(1, self.number("size", size, MAX_PAGE))
        pages = max(1, -(-len(rows) // size))
        page = max(1, self.number("page", 1, pages))
        return rows[(page - 1) * size : page * size], page, pages

    async def list_of(
        self, names: Sequence[S], size: int, read: Callable[[Sequence[S]], Awaitable[list[T]]]
    ) -> tuple[Sequence[T], int, int, bool]:
        """Return a page of the rows that `read` returns, its number and the number of pages.

        The last value is False if there are too many rows to sort them all: the page is sorted.
        """
        if self.query("sort") and len(names) <= MAX_SORTED:
            return (*self.page_of(self.ordered(await read(names)), size), True)
        shown, page, pages = self.page_of(names, size)
        return self.ordered(await read(shown)), page, pages, not self.query("sort")

    async def read_body(self) -> bytes:
        """Read the body of the request. Raises PageError."""
        body = b""
        async for part in self.request.stream():
            body += part
            if len(body) > MAX_BODY:
                raise PageError(413, f"A request may have {MAX_BODY >> 20} MiB.")
        return body

    async def read_json(self, kind: type[T]) -> T:
        """Read the body of a call, null if there is none. Raises PageError."""
        body = await self.read_body()
        media_type = self.request.headers.get("content-type", "").partition(";")[0].strip()
        if body and not _JSON.fullmatch(media_type.lower()):
            raise PageError(415, f"The Content-Type must be application/json, not {media_type!r}.")
        try:
            return msgspec.json.decode(body or b"null", type=kind, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PageError(422, f"The body cannot be read: {error}.") from None

    async def read_form(self) -> None:
        """Read the form of a POST. Raises PageError."""
        body = await self.read_body()
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000)
        except ValueError:
            raise PageError(400, "The form cannot be read.") from None
        self.form = dict(pairs)

    # Rights.

    @property
    def user(self) -> str:
        return self.session.user

    @property
    def menu(self) -> Sequence[tuple[str, str]]:
        """The pages of the menu."""
        return MENU

    @property
    def section(self) -> str:
        """The page of the menu that this one belongs to."""
        here = self.request.url.path
        if here in _SECTIONS:
            return _SECTIONS[here]
        return next((path for path, _ in MENU[1:] if here.startswith(path[:-1])), here)

    @property
    def may_write(self) -> bool:
        """True if the client may change anything; ACL rules then decide what."""
        if self.services.config.read_only:
            return False
        return (
            self.console.is_secured
            or is_loopback(self.host)
            or self.services.settings.flag("console.remote.write")
        )

    def require_write(self) -> None:
        """Raise PageError if the client may change nothing."""
        if self.services.config.read_only:
            raise PageError(403, SENTENCE)
        if not self.may_write:
            raise PageError(
                403,
                "Clients of other machines may only read while no listener authenticates clients: "
                "set console.remote.write, or configure a SASL listener.",
            )

    def context(self, api_key: int = _FETCH) -> Context:
        """Return the context of a Kafka request of the user, in the API's highest version."""
        version = apis.BY_KEY[api_key].versions[1]
        return Context(self.services, api_key, version, CLIENT_ID, self._client)

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the user has the right; a denial is not audited."""
        return self.context().allows(operation, kind, name, audit=False)

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise PageError unless the user has the right; a denial is audited."""
        if not self.context().allows(operation, kind, name):
            shown = "the cluster" if kind is ResourceType.CLUSTER else f"{kind.name} {name!r}"
            raise PageError(403, f"User {self.user!r} may not {operation.name} {shown}.")

    async def charge(self, quota: str, size: int) -> None:
        """Charge bytes to a quota of the user. Raises PageError if it is used up."""
        wait_ms = await self.services.quotas.admit(self._client, CLIENT_ID, quota, size)
        if wait_ms:
            wait_s = -(-wait_ms // 1000)
            raise PageError(429, f"The quota {quota} is used up: try again in {wait_s} s.")

    async def wait_for_quota(self, quota: str, size: int) -> None:
        """Charge bytes to a quota of the user, and wait first until it is not used up."""
        while True:
            wait_ms = await self.services.quotas.admit(self._client, CLIENT_ID, quota, size)
            if not wait_ms:
                return
            await asyncio.sleep(wait_ms / 1000)

    async def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, committed: bool = False
    ) -> Fetched:
        """Read records and charge them to the user's quota. Raises PageError and KorvetError."""
        await self.charge(CONSUMER_BYTES, 0)
        got = await self.log.fetch(
            topic, partition, offset, max_bytes=max_bytes, committed=committed
        )
        await self.charge(CONSUMER_BYTES, sum(map(bytes_of, got.records)))
        return got

    # Kafka's APIs.

    async def call(self, request: Message) -> Any:
        """Return the response to a request, handled as that of a client. Raises StoreError."""
        api = apis.BY_KEY[request.__message__.key]
        answer = None
        if self.services.interceptor:
            answer = self.services.interceptor.response(api, request)
        if answer is None:
            answer = authorization.handle(api, request, self.context(api.key))
        try:
            return await answer
        except CloseWithoutResponse as reason:
            raise PageError(503, f"{reason}.") from None


def bytes_of(record: Record | StoredRecord) -> int:
    """Return the bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


def check(error: int, reason: str | None = None) -> None:
    """Raise PageError if a response has an error."""
    if error:
        code = ErrorCode(error)
        raise refusal(code, reason or code.message or code.name)


def refusal(code: ErrorCode, reason: str) -> PageError:
    """Return the error of a page for an error of Kafka."""
    status, number = _REFUSALS.get(code, (400, 40002))
    if code.name.endswith("AUTHORIZATION_FAILED"):
        status, number = 403, 40301
    return PageError(status, f"{reason} ({code.name})", number)


def check_row(row: Any) -> None:
    """Raise PageError if a response, or a row of one, has an error."""
    check(row.error_code, row.error_message)


def is_loopback(host: str) -> bool:
    """Return whether the address is of this machine."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
