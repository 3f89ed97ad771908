"""Signed tokens, and the key set that verifies them."""

import json
import os
import time
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER, AUDIENCE = "https://issuer.example", "korvet"


class Issuer:
    """An issuer with one key, and a file with its public key."""

    def __init__(self, file: Path, kid: str = "one") -> None:
        self.file = file
        self.key = RSAKey.generate_key(2048, {"kid": kid})
        self.publish()

    @property
    def url(self) -> str:
        return self.file.as_uri()

    def rotate(self, kid: str) -> None:
        """Publish another key in place of this one."""
        self.key = RSAKey.generate_key(2048, {"kid": kid})
        self.publish()

    def publish(self, content: str | None = None) -> None:
        """Replace the file at once, as operators do."""
        text = content or json.dumps({"keys": [self.key.as_dict(private=False)]})
        draft = self.file.with_suffix(".new")
        draft.write_text(text)
        os.replace(draft, self.file)

    def token(
        self, user: str = "alice", *, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """Return a token of the user; a claim that is None is left out."""
        now = int(time.time())
        wanted = {
            "sub": user,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 60,
            **claims,
        }
        found = {name: value for name, value in wanted.items() if value is not None}
        head = {"alg": "RS256", "kid": self.key.kid, **(header or {})}
        return jwt.encode(
            {name: value for name, value in head.items() if value is not None},
            found,
            self.key,
            algorithms=["RS256", "PS256"],
        )


def settings(url: str) -> dict[str, str]:
    """Return the broker's settings for tokens of the issuer."""
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "0",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
    }
