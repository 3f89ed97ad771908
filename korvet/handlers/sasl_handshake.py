"""SaslHandshake. Begin the exchange of a SASL mechanism.

Behaviour
- on a SASL listener: NONE, or UNSUPPORTED_SASL_MECHANISM with the enabled mechanisms and the
  connection is closed (`korvet/broker/authentication.py`)
- ILLEGAL_SASL_STATE on a listener without SASL, and after authentication unless the session ends;
  the connection stays usable
Versions
- v0 tokens follow as frames without a header, v1 in SaslAuthenticate
Left out
- GSSAPI
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def sasl_handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
