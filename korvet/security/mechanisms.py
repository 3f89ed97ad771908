"""The SASL mechanisms of each listener.

OAUTHBEARER is imported when a listener uses it: it needs the extra `oauth`.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from korvet.base import logfmt
from korvet.config.setting import StartError
from korvet.config.values import Settings
from korvet.security.attempts import Attempts
from korvet.security.credentials import Mechanism
from korvet.security.plain import PasswordCheck, PlainExchange
from korvet.security.scram import ScramExchange
from korvet.security.session import Exchange
from korvet.security.users import Users

if TYPE_CHECKING:
    from korvet.security.oauthbearer import TokenValidator

log = logfmt.get("security")


class Listener(Protocol):
    """The fields of a listener that authentication needs."""

    @property
    def name(self) -> str: ...
    @property
    def protocol(self) -> str: ...


class ListenerPolicy(msgspec.Struct, frozen=True):
    """The settings of one listener's authentication."""

    mechanisms: tuple[str, ...]
    """SASL names of the mechanisms that clients may use."""
    max_receive_bytes: int
    """Max bytes of a request before authentication."""
    max_session_s: float
    """Seconds after which a client must authenticate again, 0 for never."""
    failure_delay_s: float
    """Seconds from wrong credentials to the response."""
    timeout_s: float
    """Seconds in which a client must authenticate."""
    skew_s: int
    """Seconds after its end for which a token is valid."""


class Mechanisms:
    """Begins exchanges of the mechanisms that a listener enables."""

    def __init__(self, users: Users, settings: Settings) -> None:
        self._users = users
        self._settings = settings
        self._attempts = Attempts()
        self.passwords = PasswordCheck(users, self._attempts)
        self._policies: dict[str, ListenerPolicy] = {}
        self._validators: dict[str, TokenValidator] = {}

    async def start(self, listeners: Iterable[Listener], *, warn: bool = True) -> None:
        """Prepare the mechanisms of the SASL listeners. Raises StartError.

        `warn`: log mechanisms that send passwords or tokens without TLS.
        """
        for listener in listeners:
            if not listener.protocol.startswith("SASL_"):
                continue
            enabled = self.policy(listener.name).mechanisms
            if "OAUTHBEARER" in enabled:
                validator = self._validators[listener.name] = self._validator(listener.name)
                await asyncio.to_thread(validator.jwks.start)
            readable = [name for name in ("PLAIN", "OAUTHBEARER") if name in enabled]
            if warn and listener.protocol == "SASL_PLAINTEXT" and readable:
                log.warning(
                    "passwords or tokens are sent without TLS",
                    listener=listener.name,
                    mechanisms=",".join(readable),
                )

    def policy(self, listener: str) -> ListenerPolicy:
        """Return the listener's settings."""
        found = self._policies.get(listener)
        if found is None:
            settings = self._settings.of_listener(listener)
            found = self._policies[listener] = ListenerPolicy(
                settings.words("sasl.enabled.mechanisms"),
                settings.integer("sasl.server.max.receive.size"),
                settings.integer("connections.max.reauth.ms") / 1000,
                settings.integer("connection.failed.authentication.delay.ms") / 1000,
                settings.integer("connection.authentication.timeout.ms") / 1000,
                settings.integer("sasl.oauthbearer.clock.skew.seconds"),
            )
        return found

    def exchange(self, mechanism: str, listener: str, address: str) -> Exchange:
        """Begin an exchange of an enabled mechanism with a client at an address."""
        if mechanism == "PLAIN":
            return PlainExchange(self.passwords, address)
        if mechanism == "OAUTHBEARER":
            from korvet.security.oauthbearer import OAuthBearerExchange

            return OAuthBearerExchange(self._validators[listener])
        return ScramExchange(Mechanism.of(mechanism), self._users, self._attempts, address)

    def _validator(self, listener: str) -> "TokenValidator":
        try:
            from korvet.security.oauthbearer import TokenValidator
        except ImportError:
            raise StartError(
                "OAUTHBEARER needs the package joserfc: install korvet[oauth]."
            ) from None
        return TokenValidator.of(self._settings.of_listener(listener))
