"""SaslAuthenticate. Take a step of the exchange.

Behaviour
- after SaslHandshake: the broker's token, or SASL_AUTHENTICATION_FAILED and the connection is
  closed (`korvet/broker/authentication.py`)
- ILLEGAL_SASL_STATE on a listener without SASL and after authentication; the connection stays
  usable
Versions
- v1 session_lifetime_ms, v2 flexible
Left out
- GSSAPI, delegation tokens
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def sasl_authenticate(
    request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
