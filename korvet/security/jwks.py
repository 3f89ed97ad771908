"""The keys that verify tokens: a JSON Web Key Set from a file or over HTTPS.

Rules
- A file is read again when it changed, a URL after the refresh interval and for an unknown key id.
  A set that cannot be read leaves the last one in use.
- Redirects are not followed. http: is refused: a network could replace the keys.
- Symmetric keys are ignored: an attacker could sign a token with a public key as HMAC's secret.
- Everything here blocks: it runs in a thread.
"""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic
from urllib.parse import unquote, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey

from korvet.base import logfmt
from korvet.config.setting import StartError
from korvet.security.tls import file_state

TIMEOUT_S = 5.0
MAX_BYTES = 1 << 20
VerificationKey = RSAKey | ECKey | OKPKey
_KINDS = {"RSA", "EC", "OKP"}

log = logfmt.get("security.jwks")


class JwksError(Exception):
    """A key set cannot be read; the message says why."""


class Jwks:
    """The keys of one URL."""

    def __init__(
        self, url: str, refresh_s: float, retry_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("file", "https") or parts.username is not None:
            raise StartError(
                "sasl.oauthbearer.jwks.endpoint.url must be an https: or file: URL without a "
                "password."
            )
        self._url = url
        self._path = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._refresh_s = refresh_s
        self._retry_s = retry_s
        self._clock = clock
        self._keys: list[VerificationKey] = []
        self._state: object = None
        self._read_at = self._tried_at = float("-inf")
        self._reading = Lock()

    def start(self) -> None:
        """Read the keys. Raises StartError for a file; a URL is read again at the next token."""
        try:
            self._read()
        except JwksError as error:
            if self._path is not None:
                raise StartError(f"sasl.oauthbearer.jwks.endpoint.url: {error}.") from None
            log.warning("key set cannot be read", reason=str(error))

    def candidates(self, kid: str | None) -> Sequence[VerificationKey]:
        """Return the keys with that id, all keys without one."""
        if self._is_due():
            self._refresh()
        found = self._with_id(kid)
        if not found and self._clock() - self._tried_at >= self._retry_s:
            self._refresh()
            found = self._with_id(kid)
        return found

    def _with_id(self, kid: str | None) -> list[VerificationKey]:
        return [key for key in self._keys if kid is None or key.kid == kid]

    def _is_due(self) -> bool:
        if self._path is not None:
            return file_state(self._path) != self._state
        now = self._clock()
        is_old = now - self._read_at >= self._refresh_s
        return is_old and now - self._tried_at >= min(self._retry_s, self._refresh_s)

    def _refresh(self) -> None:
        """Read the keys unless another thread does; log a failure."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._read()
        except JwksError as error:
            log.warning("key set cannot be read, the last one is used", reason=str(error))
        finally:
            self._reading.release()

    def _read(self) -> None:
        self._tried_at = self._clock()
        if self._path is not None:
            self._state = file_state(self._path)
        self._keys = _parsed(self._content())
        self._read_at = self._clock()
        log.info("key set read", keys=len(self._keys))

    def _content(self) -> bytes:
        try:
            if self._path is not None:
                with self._path.open("rb") as file:
                    return file.read(MAX_BYTES)
            context = ssl.create_default_context()
            opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=context), _NoRedirects()
            )
            with opener.open(self._url, timeout=TIMEOUT_S) as response:
                return bytes(response.read(MAX_BYTES))
        except (OSError, ValueError) as error:
            raise JwksError(getattr(error, "strerror", None) or str(error)) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises an HTTPError for a redirect."""

    def redirect_request(self, *_: object) -> None:
        return None


def _parsed(content: bytes) -> list[VerificationKey]:
    try:
        rows = json.loads(content)["keys"]
        found = [key for row in rows if (key := _key(row)) is not None]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise JwksError("it is not a JSON Web Key Set") from None
    if not found:
        raise JwksError("it has no RSA, EC or OKP key for signatures")
    return found


def _key(row: dict[str, object]) -> VerificationKey | None:
    """Return the key of a row; None if it is of another kind, for encryption, or invalid."""
    if row.get("kty") not in _KINDS or row.get("use", "sig") != "sig":
        return None
    try:
        key = JWKRegistry.import_key(row)  # type: ignore[arg-type]
    except (JoseError, ValueError, KeyError):
        return None
    return key if isinstance(key, VerificationKey) else None
