"""Authentication of a connection to a SASL listener: which requests it may send, and when.

Rules, as in Kafka
- Before SaslHandshake a client may send ApiVersions. Any other request closes the connection.
- Between SaslHandshake and the end of the exchange any other request gets ILLEGAL_SASL_STATE, then
  the connection is closed. After SaslHandshake version 0 tokens are frames without a header.
- Wrong credentials get SASL_AUTHENTICATION_FAILED, then the connection is closed. The response is
  sent a fixed time after the request, so that its time says nothing about the user.
- A session may end (connections.max.reauth.ms, or the token's `exp`). SaslHandshake then begins a
  new exchange on the same connection, for the same user and mechanism. Any later request of an
  ended session closes the connection.
- A user above max.connections.per.user gets SASL_AUTHENTICATION_FAILED with that reason.
- If Redis is unavailable, the connection is closed: the client tries again. Clients take
  SASL_AUTHENTICATION_FAILED for final.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic, perf_counter, time

import msgspec

from korvet import apis
from korvet.base import logfmt
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.broker.dispatch import Request
from korvet.broker.error_responses import refused
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import API_VERSIONS, CloseConnection, decode_frame
from korvet.security.audit import Audit
from korvet.security.mechanisms import ListenerPolicy, Mechanisms
from korvet.security.session import (
    AuthenticationFailed,
    Exchange,
    Identity,
    Principal,
    Session,
    Step,
)
from korvet.store.errors import StoreError
from korvet.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from korvet.wire.records import Buffer
from korvet.wire.schema import Message

_HANDSHAKE = b"\x00\x11"
MIN_REAUTHENTICATION_S = 1.0
"""Min time between two re-authentications of a connection."""

log = logfmt.get("broker.authentication")


class Phase(Enum):
    """The phases of a connection, named after the frames that may arrive."""

    HANDSHAKE = auto()
    TOKEN = auto()
    REQUESTS = auto()


class RawToken(msgspec.Struct, frozen=True):
    """A token without a header, with its pending answer."""

    answer: Awaitable[list[Buffer]]


@dataclass(eq=False, repr=False)
class Authentication:
    """The state of one connection. `ended`: why the connection closes after the response."""

    mechanisms: Mechanisms
    audit: Audit
    metrics: Metrics
    session: Session
    dispatch: Callable[[Frame], Request | list[Buffer]]
    admit: Callable[[str], bool]
    on_success: Callable[[], None]
    on_timeout: Callable[[str], None]

    def __post_init__(self) -> None:
        self.policy: ListenerPolicy = self.mechanisms.policy(self.session.listener)
        self._phase = Phase.HANDSHAKE
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._is_raw = False
        self._client_id: str | None = None
        self._before: tuple[Principal, str] | None = None
        self._ends_at: float | None = None
        self._handshake_at = float("-inf")
        self.ended: AuthenticationFailed | None = None
        self._timer = asyncio.get_running_loop().call_later(
            self.policy.timeout_s, self.on_timeout, "the client did not authenticate in time"
        )

    def close(self) -> None:
        """Stop the timer: the client is disconnected."""
        self._timer.cancel()

    @property
    def about(self) -> dict[str, object]:
        """Log fields of the attempt."""
        fields: dict[str, object] = {"mechanism": self._mechanism or None}
        if self.ended is not None:
            fields["user"] = self.ended.user
        return fields

    def admits(self, frame: Frame) -> bool:
        """Return whether the frame is a request of an authenticated client."""
        if self._phase is not Phase.REQUESTS:
            return False
        if self._ends_at is None:
            return True
        return frame[:2] != _HANDSHAKE and monotonic() < self._ends_at

    def begin(self, frame: Frame) -> Request | RawToken | list[Buffer]:
        """Begin a frame that is not admitted. Raises CloseConnection."""
        if self._phase is Phase.REQUESTS:
            is_handshake = frame[:2] == _HANDSHAKE
            if not is_handshake or not self._begin_again():
                assert self._ends_at is not None
                if monotonic() >= self._ends_at:
                    raise CloseConnection(
                        "the session ended, the client did not authenticate again"
                    )
                return self.dispatch(frame)
        if self._phase is Phase.TOKEN and self._is_raw:
            return RawToken(self._raw(bytes(frame)))
        return self._begin_request(frame)

    def _begin_again(self) -> bool:
        """Begin a re-authentication; return False if the last one was too short ago."""
        if monotonic() - self._handshake_at < MIN_REAUTHENTICATION_S:
            return False
        self._before = (self.session.principal, self._mechanism)
        self._phase = Phase.HANDSHAKE
        return True

    def _begin_request(self, frame: Frame) -> Request | list[Buffer]:
        began = perf_counter()
        is_first = self._phase is Phase.HANDSHAKE
        if is_first and frame[:2] == API_VERSIONS.to_bytes(2, "big"):
            return self.dispatch(frame)
        row, header, body = decode_frame(frame)
        self._client_id = header.client_id
        if is_first and isinstance(body, SaslHandshakeRequest):
            answer: Awaitable[Message] = self._handshake(body, header.api_version)
        elif is_first:
            raise CloseConnection(
                "a request before authentication",
                api=row.name,
                version=header.api_version,
                client_id=header.client_id,
            )
        elif isinstance(body, SaslAuthenticateRequest):
            answer = self._authenticate(body)
        else:
            answer = self._out_of_order(row, body)
        version, number = header.api_version, header.correlation_id
        return Request(row, version, number, header.client_id, answer, body, began)

    async def _handshake(self, request: SaslHandshakeRequest, version: int) -> Message:
        self._handshake_at = monotonic()
        mechanisms = list(self.policy.mechanisms)
        if request.mechanism not in mechanisms:
            self._end(AuthenticationFailed("", "the mechanism is not enabled"))
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
        self._mechanism = request.mechanism
        self._exchange = self.mechanisms.exchange(
            request.mechanism, self.session.listener, self.session.client_host
        )
        self._is_raw = version == 0
        self._phase = Phase.TOKEN
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms)

    async def _out_of_order(self, row: apis.Api, body: Message) -> Message:
        self._end(AuthenticationFailed("", f"{row.name} during authentication"))
        return refused(row, body, ErrorCode.ILLEGAL_SASL_STATE)

    async def _authenticate(self, request: SaslAuthenticateRequest) -> Message:
        try:
            step = await self._step(request.auth_bytes)
        except AuthenticationFailed as failed:
            self._end(failed)
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(failed),
                auth_bytes=b"",
            )
        lifetime_ms = self._accept(step.identity) if step.identity is not None else 0
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, auth_bytes=step.token, session_lifetime_ms=lifetime_ms
        )

    async def _raw(self, token: bytes) -> list[Buffer]:
        """Return the frame that answers a token without a header. Raises CloseConnection."""
        try:
            step = await self._step(token)
        except AuthenticationFailed as failed:
            self._end(failed)
            raise CloseConnection(f"authentication failed: {failed.reason}", **self.about) from None
        except CloseWithoutResponse as error:
            raise CloseConnection(str(error)) from None
        if step.identity is not None:
            self._accept(step.identity)
        return [len(step.token).to_bytes(4, "big") + step.token]

    async def _step(self, token: bytes) -> Step:
        """Take a step of the exchange. A failure is raised a fixed time after the request."""
        assert self._exchange is not None
        began = monotonic()
        try:
            self._check_mechanism()
            step = await self._exchange.step(token)
            if step.identity is not None:
                self._check_user(step.identity.user)
            return step
        except AuthenticationFailed:
            self._count("failed")
            await asyncio.sleep(max(0.0, began + self.policy.failure_delay_s - monotonic()))
            raise
        except StoreError as error:
            log.error_again("authentication failed in Redis", error=error)
            raise CloseWithoutResponse("authentication is not possible without Redis") from None

    def _check_mechanism(self) -> None:
        """Raise AuthenticationFailed if a re-authentication changes the mechanism."""
        if self._before is not None and self._before[1] != self._mechanism:
            raise AuthenticationFailed(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                f"reauthentication of mechanism '{self._before[1]}'",
                "re-authentication with another mechanism",
            )

    def _check_user(self, user: str) -> None:
        """Raise AuthenticationFailed for too many connections, or another user than before."""
        if self._before is None:
            if not self.admit(user):
                raise AuthenticationFailed(
                    "The user has too many connections to this broker: max.connections.per.user",
                    "too many connections of the user",
                    user,
                )
        elif self._before[0].name != user:
            raise AuthenticationFailed(
                "Cannot change principals during re-authentication",
                "re-authentication as another user",
                self._before[0].name,
            )

    def _end(self, failed: AuthenticationFailed) -> None:
        """Close the connection after the response; audit the reason."""
        self.ended = failed
        self._audit(failed.reason, failed.user or "")

    def _audit(self, failure: str, user: str) -> None:
        self.audit.authentication(self.session, self._client_id, self._mechanism, failure, user)

    def _accept(self, identity: Identity) -> int:
        """Begin the user's session; return its length in ms, 0 for no end."""
        self._count("succeeded")
        self._audit("", identity.user)
        self.session.principal = Principal("User", identity.user)
        self._phase, self._exchange = Phase.REQUESTS, None
        self._timer.cancel()
        ends = [self.policy.max_session_s] if self.policy.max_session_s else []
        enforced = list(ends)
        if identity.expires_at is not None:
            left_s = identity.expires_at - time()
            ends.append(left_s)
            # The validator takes the token for as long after its end.
            enforced.append(left_s + self.policy.skew_s)
        self._ends_at = monotonic() + min(enforced) if enforced else None
        log.debug(
            "client authenticated",
            principal=self.session.principal,
            mechanism=self._mechanism,
            listener=self.session.listener,
            host=self.session.client_host,
            again=self._before is not None,
        )
        self.on_success()
        return max(0, int(min(ends) * 1000)) if ends else 0

    def _count(self, outcome: str) -> None:
        self.metrics.authentications.add(1, self._mechanism, outcome)
