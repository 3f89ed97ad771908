"""The Redis URL, parsed once: servers, credentials, TLS.

redis://[user:password@]host[:port][/db]      rediss:// the same under TLS
unix:///path/to.sock[?db=N]
redis+sentinel://[user:password@]host:port,host:port/master[/db]
redis+cluster://[user:password@]host:port[,host:port]

`rediss+sentinel` and `rediss+cluster` use TLS. The query takes redis-py's options (`ssl_ca_certs`,
`ssl_cert_reqs`, ...), and for Sentinel `sentinel_username`, `sentinel_password`.

Other clients may read the same URL. Options for those clients alone (`decode_responses`,
`protocol`, `timeout`, options of other libraries) are ignored. An unknown option about TLS is
refused: the connection would be less safe than the URL asks for.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

from korvet.store.errors import RedisUnreachable

if TYPE_CHECKING:
    import ssl

_PLAIN = ("redis", "rediss", "unix")
_ENTRY = ("host", "port", "path", "db", "username", "password")
_SYNC = ("socket_timeout", "socket_connect_timeout", "socket_keepalive", "health_check_interval")
"""Options of redis-py's connections that SyncStore passes on."""
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_TLS = (*_FILES, "ssl_ca_data", "ssl_cert_reqs", "ssl_check_hostname", "ssl_password")
_NEWER = ("ssl_min_version", "ssl_include_verify_flags", "ssl_exclude_verify_flags")
"""Options that only newer versions of redis-py read from a URL."""
_USED = {*_ENTRY, *_SYNC, "client_name"}


class BadAddress(RedisUnreachable):
    """The URL names no Redis server; the message shows a valid URL."""


@dataclass(frozen=True)
class Address:
    """A server: address, credentials, database, TLS."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: "ssl.SSLContext | None" = field(default=None, repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> "Address":
        """Return the address of another server of the same deployment."""
        return replace(self, host=host, port=port, path=None)


@dataclass(frozen=True)
class Location:
    """A deployment: one server, the nodes of a cluster, or the Sentinels."""

    kind: str
    seeds: tuple[Address, ...]
    master: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        where = ",".join(map(str, self.seeds))
        return f"{where}/{self.master}" if self.master else where


def parse(url: str) -> Location:
    """Parse a Redis URL. Raises BadAddress."""
    scheme, _, address = url.partition("://")
    base, _, kind = scheme.partition("+")
    if base not in _PLAIN or kind not in ("", "sentinel", "cluster") or (kind and base == "unix"):
        # Without "://" the text before it may have a password.
        shown = scheme if address or url.endswith("://") else url.rpartition("@")[2]
        raise BadAddress(
            f"{shown or url!r} is no Redis URL: use redis://HOST:PORT, rediss://HOST:PORT, "
            "unix:///PATH, redis+sentinel://HOST:PORT/MASTER or redis+cluster://HOST:PORT"
        )
    if not kind:
        return Location("single", (_parse_server(url),))
    return _parse_servers(base, kind, address)


def _parse_server(url: str) -> Address:
    try:
        options = _server_options(url)
    except ValueError as error:
        raise BadAddress(f"{error} in the Redis URL") from error
    secure = url.startswith("rediss")
    return Address(
        host=options.pop("host", "localhost"),
        port=options.pop("port", 6379),
        path=options.pop("path", None),
        db=int(options.pop("db", 0)),
        username=options.pop("username", None),
        password=options.pop("password", None),
        tls=_tls(options) if secure else None,
        options=options,
    )


def _server_options(url: str) -> dict[str, Any]:
    """Parse one server's URL with redis-py.

    redis-py is imported only if the URL has options: its import takes longer than all others.
    """
    parts = _split(url)
    found: dict[str, Any] = {"username": parts.username, "password": parts.password}
    number = unquote(parts.path).replace("/", "")
    if parts.scheme == "unix":
        found["path"] = parts.path
    else:
        found["host"] = parts.hostname
    options = _used_options(parts.query)
    options |= {name: unquote(value) for name, value in found.items() if value}
    if parts.scheme != "unix":
        options |= {"port": parts.port} if parts.port else {}
        options |= {"db": int(number)} if number.isdecimal() and "db" not in options else {}
    return options


def _split(url: str, *, has_one_port: bool = True) -> SplitResult:
    """Return the parts of the URL. Raises BadAddress, whose message has none of a password."""
    try:
        parts = urlsplit(url)
        if has_one_port:
            _ = parts.port
    except ValueError:
        raise BadAddress(
            "host or port in the Redis URL are not valid: in a password write '/', '#', '?', '@', "
            "'[' and ']' as %2F, %23, %3F, %40, %5B and %5D"
        ) from None
    return parts


def _used_options(query: str) -> dict[str, Any]:
    """Return the options of the query that the store uses."""
    given = parse_qs(query).items()
    asked = {name: each for name, each in given if name in _USED or name.startswith("ssl")}
    if not asked:
        return {}
    from redis.connection import URL_QUERY_ARGUMENT_PARSERS, parse_url

    known = {*_TLS, "ssl_ciphers", *(URL_QUERY_ARGUMENT_PARSERS.keys() & _NEWER)}
    unknown = [name for name in asked if name.startswith("ssl") and name not in known]
    if unknown:
        raise ValueError(f"unknown option {min(unknown)!r} (known: {', '.join(_TLS)})")
    options = parse_url(f"redis://?{urlencode(asked, doseq=True)}")  # type: ignore[no-untyped-call]
    return {name: value for name, value in options.items() if name in asked}


def _parse_servers(base: str, kind: str, servers: str) -> Location:
    parts = _split(f"{base}://{servers}", has_one_port=False)
    entry, _, hosts = parts.netloc.rpartition("@")
    path = [unquote(piece) for piece in parts.path.split("/") if piece]
    query = parse_qs(parts.query)
    sentinel = {name: query.pop(name)[0] for name in list(query) if name.startswith("sentinel_")}
    if kind == "sentinel" and not path:
        raise BadAddress(
            "a Sentinel URL ends with the master's name: redis+sentinel://HOST:PORT/NAME"
        )
    plain = urlencode(query, doseq=True)
    tail = f"/{path[1]}" if kind == "sentinel" and len(path) > 1 else ""
    before = f"{entry}@" if entry else ""
    default = ":26379" if kind == "sentinel" else ""
    with_port = (
        host if ":" in host.rpartition("]")[2] else host + default
        for host in hosts.split(",")
        if host
    )
    seeds = tuple(_parse_server(f"{base}://{before}{host}{tail}?{plain}") for host in with_port)
    if not seeds:
        raise BadAddress(f"the {kind} URL has no host")
    return Location(
        kind,
        seeds,
        master=path[0] if kind == "sentinel" else "",
        sentinel_username=sentinel.get("sentinel_username"),
        sentinel_password=sentinel.get("sentinel_password"),
    )


def _tls(options: dict[str, Any]) -> "ssl.SSLContext":
    """Return the TLS context that the options ask for. Raises BadAddress."""
    import ssl

    named = ", ".join(f"{name}={value}" for name, value in options.items() if name in _FILES)
    try:
        return _context(options)
    except KeyError:
        raise BadAddress(
            "ssl_cert_reqs in the Redis URL must be none, optional or required, "
            f"not {options['ssl_cert_reqs']!r}"
        ) from None
    except ssl.SSLError:
        raise BadAddress(
            f"{named or 'ssl_ca_data'} in the Redis URL: not a usable certificate or key"
        ) from None
    except (TypeError, ValueError) as error:  # NUL in a file name, or an unknown TLS version
        raise BadAddress(f"{error} in the Redis URL") from None
    except OSError as error:
        raise BadAddress(f"{named} in the Redis URL: {error.strerror}") from None


def _context(options: dict[str, Any]) -> "ssl.SSLContext":
    import ssl

    verify = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
    context = ssl.create_default_context(
        cafile=options.get("ssl_ca_certs"),
        capath=options.get("ssl_ca_path"),
        cadata=options.get("ssl_ca_data"),
    )
    mode = verify[str(options.get("ssl_cert_reqs", "required"))]
    named = str(options.get("ssl_check_hostname", True)).lower() not in ("false", "0", "no")
    context.check_hostname = named and mode is ssl.CERT_REQUIRED
    context.verify_mode = mode
    for flag in options.get("ssl_include_verify_flags") or ():
        context.verify_flags |= flag
    for flag in options.get("ssl_exclude_verify_flags") or ():
        context.verify_flags &= ~flag
    if options.get("ssl_min_version"):
        context.minimum_version = ssl.TLSVersion(options["ssl_min_version"])
    if options.get("ssl_ciphers"):
        _set_ciphers(context, options["ssl_ciphers"])
    if options.get("ssl_certfile"):
        context.load_cert_chain(
            options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        )
    return context


def _set_ciphers(context: "ssl.SSLContext", ciphers: str) -> None:
    import ssl

    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        raise ValueError(f"unknown ssl_ciphers {ciphers!r}") from None
