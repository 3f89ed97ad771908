"""SaslHandshake (key 17), versions 0-1. Return ILLEGAL_SASL_STATE: SASL is not supported.

Behaviour
- as a PLAINTEXT listener of Kafka: no mechanisms, and the connection stays usable without SASL
Versions
- v1 a client would send the mechanism's bytes in SaslAuthenticate
Left out
- SASL
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def sasl_handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
