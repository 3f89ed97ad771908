"""SaslHandshake (key 17), versions 0-1. This port asks nobody who they are: ILLEGAL_SASL_STATE.

Behaviour
- as Kafka on a PLAINTEXT port: no mechanisms, and the connection may go on without
Versions
- v1 the mechanism's bytes would travel in SaslAuthenticate
Left out
- SASL itself
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def sasl_handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
