"""SaslHandshake (key 17): choose a SASL mechanism. Never flexible.

After version 0 the mechanism's bytes follow without Kafka framing, after 1 in SaslAuthenticate.
"""

from korvet.wire.schema import Message, i16, request, response


@request(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest(Message):
    mechanism: str


@response(SaslHandshakeRequest)
class SaslHandshakeResponse(Message):
    error_code: i16 = 0
    mechanisms: list[str]
