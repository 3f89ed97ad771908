"""OAUTHBEARER (RFC 7628): a JSON Web Token, verified as Kafka's broker does.

Rules
- Signatures by RSA, ECDSA and EdDSA only: `none` and HMAC are refused.
- `exp`, `iat`, `iss`, `aud` and the user's claim are required. The clock skew applies to `exp` and
  `nbf`. `iat` may be in the future.
- A refused token gets a JSON challenge; the client's next message ends the attempt (RFC 7628, 3.2).
- Tokens are not logged. The reason in the log has no part of a token.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import time
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError

from korvet.config.setting import StartError
from korvet.config.values import Settings
from korvet.security.jwks import Jwks
from korvet.security.session import AuthenticationFailed, Identity, Step

ALGORITHMS = (
    *(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)),
    "EdDSA",
    "Ed25519",
)
REQUIRED = (
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience",
)
"""Settings without a default that the mechanism needs."""
_SASL_NAME = r"(?:[^\x00=,\x80-\xff]|=2C|=3D)+"
_MESSAGE = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01"
    r"auth=(?P<scheme>[A-Za-z]+) +(?P<token>[-A-Za-z0-9._~+/]+=*)\x01"
    r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*\x01"
)
_CHALLENGE = '{"status":"invalid_token"}'


class TokenRefused(Exception):
    """A token was refused; the message has no part of the token."""


class TokenPolicy(msgspec.Struct, frozen=True):
    """The claims that a token must have."""

    issuer: str
    audiences: Sequence[str]
    skew_s: int
    user_claim: str
    scope_claim: str


class TokenValidator:
    """Verifies tokens of one listener, in threads."""

    def __init__(self, policy: TokenPolicy, jwks: Jwks, clock: Callable[[], float] = time) -> None:
        self._policy = policy
        self.jwks = jwks
        self._clock = clock
        self._threads = ThreadPoolExecutor(2, "oauthbearer")

    @classmethod
    def of(cls, settings: Settings, clock: Callable[[], float] = time) -> "TokenValidator":
        """Return the validator that the settings describe. Raises StartError."""
        for name in REQUIRED:
            if not settings.text_of(name):
                raise StartError(f"OAUTHBEARER needs {name}: set it.")
        policy = TokenPolicy(
            settings.text("sasl.oauthbearer.expected.issuer"),
            settings.words("sasl.oauthbearer.expected.audience"),
            settings.integer("sasl.oauthbearer.clock.skew.seconds"),
            settings.text("sasl.oauthbearer.sub.claim.name"),
            settings.text("sasl.oauthbearer.scope.claim.name"),
        )
        jwks = Jwks(
            settings.text("sasl.oauthbearer.jwks.endpoint.url"),
            settings.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
            settings.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
        )
        return cls(policy, jwks, clock)

    async def validate(self, token: str) -> Identity:
        """Return the token's user. Raises TokenRefused."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(self._validate, token))

    def _validate(self, token: str) -> Identity:
        claims = self._verified(token)
        policy, now = self._policy, self._clock()
        expires_at, _ = _number(claims, "exp"), _number(claims, "iat")
        if expires_at + policy.skew_s <= now:
            raise TokenRefused("expired")
        if claims.get("nbf") is not None and _number(claims, "nbf") - policy.skew_s > now:
            raise TokenRefused("not valid yet")
        if claims.get("iss") != policy.issuer:
            raise TokenRefused("another issuer")
        if not _words(claims, "aud") & set(policy.audiences):
            raise TokenRefused("another audience")
        _words(claims, policy.scope_claim)
        user = claims.get(policy.user_claim)
        if not isinstance(user, str) or not user.strip():
            raise TokenRefused(f"no {policy.user_claim}")
        return Identity(user, expires_at)

    def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature is right."""
        for key in self.jwks.candidates(_key_id(token)):
            try:
                return jwt.decode(token, key, algorithms=ALGORITHMS).claims
            except (JoseError, ValueError, TypeError, RecursionError):
                continue
        raise TokenRefused("no key of the set verifies it")


class OAuthBearerExchange:
    """The server's side of an OAUTHBEARER exchange."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refused = ""

    async def step(self, token: bytes) -> Step:
        """Verify the client's token. Raises AuthenticationFailed."""
        if self._refused:
            raise AuthenticationFailed(_CHALLENGE, self._refused)
        match = _MESSAGE.fullmatch(token.decode("latin-1"))
        if match is None or match["scheme"].lower() != "bearer":
            raise AuthenticationFailed(
                "Authentication failed: invalid OAUTHBEARER message", "invalid message"
            )
        try:
            identity = await self._validator.validate(match["token"])
        except TokenRefused as refused:
            self._refused = f"token refused: {refused}"
            return Step(_CHALLENGE.encode())
        wanted = match["authzid"]
        if wanted and wanted.replace("=2C", ",").replace("=3D", "=") != identity.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name",
                "authorization id differs from the token's user",
            )
        return Step(b"", identity)


def _key_id(token: str) -> str | None:
    """Return the key id in a token's header. Raises TokenRefused."""
    head = token.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        kid = header.get("kid")
    except (ValueError, AttributeError, RecursionError):
        raise TokenRefused("it is not a JSON Web Token") from None
    if kid is not None and not isinstance(kid, str):
        raise TokenRefused("its key id is not text")
    return kid


def _number(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise TokenRefused(f"{name} is not a time")
    return float(value)


def _words(claims: dict[str, Any], name: str) -> set[str]:
    """Return a claim that is text or a list of texts as a set."""
    value = claims.get(name, [])
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in values):
        raise TokenRefused(f"{name} is not text")
    return set(values)
