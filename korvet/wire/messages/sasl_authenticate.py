"""SaslAuthenticate (key 36): one step of the chosen SASL mechanism."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i64, request, response


@request(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(...)"  # it holds a secret


@response(SaslAuthenticateRequest)
class SaslAuthenticateResponse(Message):
    error_code: i16 = 0
    error_message: str | None = None
    auth_bytes: bytes
    session_lifetime_ms: Annotated[i64, Field(since=1)] = 0
