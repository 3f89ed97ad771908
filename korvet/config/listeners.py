"""Listeners: name, security protocol, address, and the address that clients connect to.

Rules
- A listener is written [NAME://]HOST:PORT; without a name it is PLAINTEXT. A name that is a
  protocol has that protocol; `listener.security.protocol.map` sets those of other names.
- Names are upper case, as in Kafka, and each names one listener.
- A host may be empty after a name, as in Kafka: the listener then accepts on all IPv4 addresses.
- An advertised listener is written in the same way. Without a name it is that of the only listener.
"""

import re
from collections.abc import Sequence

import msgspec

from korvet.config.setting import ConfigError

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EVERYWHERE = ("0.0.0.0", "::")
"""Wildcard hosts: valid to listen on, not to connect to."""
MAP = "listener.security.protocol.map"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class Address(msgspec.Struct, frozen=True):
    """A host and a port; an IPv6 host is written in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> "Address":
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
            raise ConfigError(
                f"{option} must be HOST:PORT, for example 127.0.0.1:9092, not {text!r}."
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(msgspec.Struct, frozen=True):
    """An address for Kafka clients, with its security protocol.

    Clients connect to `advertised`, by default to the address itself.
    """

    name: str = PLAINTEXT
    protocol: str = PLAINTEXT
    address: Address = Address("127.0.0.1", 9092)
    advertised: Address | None = None

    @property
    def tls(self) -> bool:
        """True if clients connect with TLS."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self.protocol.startswith("SASL")

    def __str__(self) -> str:
        prefix = "" if self.protocol == PLAINTEXT else f"{self.protocol}://"
        return f"{prefix}{self.address}"


def parse_listeners(listen: str, advertise: str, protocols: Sequence[str]) -> tuple[Listener, ...]:
    """Return the listeners of comma-separated addresses and advertised addresses.

    `protocols` are the NAME:PROTOCOL words of listener.security.protocol.map. Raises ConfigError.
    """
    by_name = _protocols(protocols)
    found: dict[str, Listener] = {}
    for word in _words(listen, "--listen"):
        name, address = _split(word, "--listen")
        if name in found:
            raise ConfigError(
                f"--listen has two listeners named {name}: write NAME://HOST:PORT, and "
                f"set {MAP} for the names."
            )
        if name not in by_name:
            raise ConfigError(
                f"--listen: {name} is not one of {', '.join(PROTOCOLS)}: use one, or set "
                f"{MAP}={name}:PROTOCOL."
            )
        found[name] = Listener(name, by_name[name], Address.parse(address, "--listen"))
    for name, advertised in _advertised(advertise, list(found)).items():
        found[name] = msgspec.structs.replace(found[name], advertised=advertised)
    return tuple(found.values())


def _protocols(words: Sequence[str]) -> dict[str, str]:
    protocols = {name: name for name in PROTOCOLS}
    for word in words:
        name, _, protocol = word.partition(":")
        if not _NAME.fullmatch(name) or protocol.upper() not in PROTOCOLS:
            raise ConfigError(
                f"{MAP} must be NAME:PROTOCOL, with a protocol of {', '.join(PROTOCOLS)}, "
                f"not {word!r}."
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _advertised(text: str, names: list[str]) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for word in _words(text, "--advertise") if text else ():
        name, address = _split(word, "--advertise", only=names[0] if len(names) == 1 else PLAINTEXT)
        if name not in names:
            raise ConfigError(
                f"--advertise: there is no listener {name}: write NAME://HOST:PORT with a name "
                f"of {', '.join(names)}."
            )
        if name in found:
            raise ConfigError(f"--advertise has two addresses of listener {name}: give one.")
        found[name] = Address.parse(address, "--advertise")
        if found[name].port == 0 or found[name].host in EVERYWHERE:
            raise ConfigError(
                f"--advertise must be HOST:PORT that clients can connect to, not {address!r}."
            )
    return found


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{option} must be [PROTOCOL://]HOST:PORT, not {text!r}.")
    return words


def _split(word: str, option: str, only: str = PLAINTEXT) -> tuple[str, str]:
    """Return name and address of a listener; `only` is the name of one without a name."""
    name, separator, address = word.partition("://")
    if not separator:
        return only, word
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{option} must be [PROTOCOL://]HOST:PORT, not {word!r}.")
    return name.upper(), EVERYWHERE[0] + address if address.startswith(":") else address
