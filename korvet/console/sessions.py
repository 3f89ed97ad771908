"""Signed cookies of the console's sessions, and their CSRF tokens.

Rules
- A session is in its cookie: an id, the user, the end, and a mark of the user's credentials. The
  broker keeps only the ids of users' sessions that were ended by a sign-out. The key is new with
  each process, so a restart ends all sessions.
- A user whose password was changed or deleted is signed out with the next request.
- A form has the token of its session. Another site's form has none, and its request has no cookie
  (SameSite=Strict).
"""

import base64
import hmac
import secrets
from binascii import Error
from time import time

import msgspec

COOKIE = "korvet_session"
SESSION_S = 8 * 3600
"""Seconds after which a user signs in again."""
MAX_ENDED = 10_000
"""Ended sessions that are kept; one more ends all sessions."""


class ConsoleSession(msgspec.Struct, frozen=True):
    """A browser's session; `user` is empty before the sign-in."""

    id: str
    user: str = ""
    mark: str = ""
    """Keyed hash of the user's credentials at the sign-in."""
    ends_at: float = 0.0


class Sessions:
    """Signs and checks the cookies."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._ended: dict[str, float] = {}
        """Id of a session that was signed out to the time at which its cookie ends."""

    def begin(self, user: str = "", mark: str = "") -> ConsoleSession:
        """Return a new session."""
        return ConsoleSession(secrets.token_urlsafe(18), user, mark, time() + SESSION_S)

    def encode(self, session: ConsoleSession) -> str:
        """Return the session's cookie."""
        body = base64.urlsafe_b64encode(msgspec.json.encode(session))
        return f"{body.decode()}.{self.digest('cookie', body)}"

    def decode(self, cookie: str) -> ConsoleSession | None:
        """Return the session of a cookie, None if it is not signed here or has ended."""
        body, _, digest = cookie.partition(".")
        if not hmac.compare_digest(digest.encode(), self.digest("cookie", body.encode()).encode()):
            return None
        try:
            found = msgspec.json.decode(base64.urlsafe_b64decode(body), type=ConsoleSession)
        except (msgspec.MsgspecError, Error):
            return None
        return found if found.ends_at > time() and found.id not in self._ended else None

    def end(self, session: ConsoleSession) -> None:
        """Accept the session's cookie no more."""
        now = time()
        self._ended = {each: at for each, at in self._ended.items() if at > now}
        if session.user:
            self._ended[session.id] = session.ends_at
        if len(self._ended) > MAX_ENDED:
            self._key = secrets.token_bytes(32)
            self._ended.clear()

    def token(self, session: ConsoleSession) -> str:
        """Return the CSRF token of the session's forms."""
        return self.digest("form", session.id.encode())

    def is_token(self, session: ConsoleSession, token: str) -> bool:
        """Return whether a form's token is that of the session."""
        return hmac.compare_digest(token.encode(), self.token(session).encode())

    def digest(self, purpose: str, data: bytes) -> str:
        """Return the keyed hash of the data for a purpose."""
        return hmac.new(self._key, purpose.encode() + b"\0" + data, "sha256").hexdigest()
