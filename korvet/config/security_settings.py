"""The broker's settings for TLS, SASL, authorization and audit."""

import re

import msgspec

from korvet.config.setting import (
    Flag,
    Kind,
    OneOf,
    Setting,
    SomeOf,
    Text,
    TopicName,
    Type,
    Whole,
    Words,
    long,
)

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_BLOCK = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)(.*?)(-----END [A-Z0-9 ]+-----)", re.DOTALL)


class PemType(msgspec.Struct, frozen=True):
    """The type of a key store or trust store: PEM only."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if text.upper() == "PEM":
            return "PEM"
        raise ValueError(
            "PEM: convert a JKS file to PKCS12 with `keytool -importkeystore -deststoretype "
            "PKCS12`, and that with `openssl pkcs12 -in FILE -out FILE.pem -nodes`"
        )


class Pem(msgspec.Struct, frozen=True):
    """PEM blocks in lines, or in one line with spaces, as a properties file has them."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        blocks = _BLOCK.findall(text)
        if not blocks or len(text) > 1 << 20:
            raise ValueError("PEM: text from -----BEGIN to -----END")
        if "\n" in text:
            return text
        return "".join(f"{begin}\n{_lines(body)}\n{end}\n" for begin, body, end in blocks)


def _lines(body: str) -> str:
    """Wrap base64 to the 64 characters a line that OpenSSL reads."""
    text = "".join(body.split())
    return "\n".join(text[at : at + 64] for at in range(0, len(text), 64))


def _tls_row(
    name: str, type_: Type, default: str | None, sentence: str, *, sensitive: bool = False
) -> Setting:
    return Setting(
        name, type_, default, sentence, dynamic=False, per_listener=True, sensitive=sensitive
    )


TLS = (
    _tls_row("ssl.keystore.type", PemType(), "PEM", "Type of the key store: PEM."),
    _tls_row("ssl.keystore.location", Text(4096), None,
        "PEM file with the private key and the certificate chain of the broker, its own "
        "certificate first. The file is read again when it changes."),
    _tls_row("ssl.keystore.key", Pem(), None,
        "Private key in PEM, in place of ssl.keystore.location.", sensitive=True),
    _tls_row("ssl.keystore.certificate.chain", Pem(), None,
        "Certificate chain in PEM, with ssl.keystore.key; the broker's own certificate first."),
    _tls_row("ssl.key.password", Text(), None,
        "Password of an encrypted private key.", sensitive=True),
    _tls_row("ssl.truststore.type", PemType(), "PEM", "Type of the trust store: PEM."),
    _tls_row("ssl.truststore.location", Text(4096), None,
        "PEM file with the certificates that sign those of clients. The file is read again when it "
        "changes."),
    _tls_row("ssl.truststore.certificates", Pem(), None,
        "Certificates in PEM, in place of ssl.truststore.location."),
    _tls_row("ssl.client.auth", OneOf(("none", "requested", "required")), "none",
        "Whether a client must have a certificate; a SASL_SSL listener uses only its own value, "
        "`listener.name.NAME.ssl.client.auth`."),
    _tls_row("ssl.enabled.protocols", SomeOf(TLS_VERSIONS), ",".join(TLS_VERSIONS),
        "TLS versions that clients may use."),
    _tls_row("ssl.cipher.suites", Words(), "",
        "Cipher suites that clients may use, by their IANA or OpenSSL names; empty are OpenSSL's."),
    _tls_row("ssl.principal.mapping.rules", Text(65536), "DEFAULT",
        "Rules from a certificate's distinguished name to a principal: "
        "RULE:PATTERN/REPLACEMENT/[LU], or DEFAULT for the name itself; the first match decides."),
    _tls_row("ssl.allow.dn.changes", Flag(), "false",
        "Whether a changed key store may have another subject."),
    _tls_row("ssl.allow.san.changes", Flag(), "false",
        "Whether a changed key store may lack some of the subject alternative names."),
    _tls_row("ssl.handshake.timeout.ms", Whole(1), "10000",
        "A connection whose TLS handshake takes longer is closed, in milliseconds."),
)  # fmt: skip

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
_OAUTH = "sasl.oauthbearer."

SASL = (
    Setting(
        "sasl.enabled.mechanisms",
        SomeOf(MECHANISMS),
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "SASL mechanisms that clients of SASL listeners may use: " + ", ".join(MECHANISMS) + ".",
        dynamic=False,
        per_listener=True,
    ),
    Setting("sasl.server.max.receive.size", Whole(1), "524288",
        "Max bytes of a request before its client has "
        "authenticated.", dynamic=False, per_listener=True),
    Setting("connections.max.reauth.ms", long(0), "0",
        "Time after which a client must authenticate again, in milliseconds; later its next "
        "request closes the connection. 0 is never; tokens of OAUTHBEARER expire all the "
        "same.", dynamic=False, per_listener=True),
    Setting("connection.failed.authentication.delay.ms", Whole(0), "100",
        "Time from a client's wrong credentials to the response, in milliseconds.", dynamic=False),
    Setting("connection.authentication.timeout.ms", Whole(1), "30000",
        "Time that a client of a SASL listener has to authenticate after it connected, in "
        "milliseconds.", dynamic=False),
    Setting(_OAUTH + "jwks.endpoint.url", Text(2000), None,
        "https: or file: URL of the JSON Web Key Set that verifies tokens of "
        "OAUTHBEARER.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "jwks.endpoint.refresh.ms", long(1), "3600000",
        "Interval between two reads of an https: key set, in milliseconds. An unknown key id "
        "causes a read at once; a file is read when it changed.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "jwks.endpoint.retry.backoff.ms", long(0), "10000",
        "Min time between two reads of the key set that unknown key ids cause, in "
        "milliseconds.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "expected.issuer", Text(2000), None,
        "The `iss` that a token must have; required with "
        "OAUTHBEARER.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "expected.audience", Words(), "",
        "The audiences of which a token must have one in `aud`; required with "
        "OAUTHBEARER.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "clock.skew.seconds", Whole(0, 3600), "30",
        "Difference that may be between the clocks of issuer and broker, in "
        "seconds.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "sub.claim.name", Text(200), "sub",
        "Claim of a token that holds the user's name.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "scope.claim.name", Text(200), "scope",
        "Claim of a token that holds its scopes: text or a list of texts, if "
        "present.", dynamic=False, per_listener=True),
)  # fmt: skip

KAFKAS_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


AUTHORIZATION = (
    Setting("authorizer.class.name", OneOf(("", "korvet", KAFKAS_AUTHORIZER)), "",
        "Empty allows every client everything; `korvet`, or the name of Kafka's authorizer, allows "
        "what ACL rules allow.", dynamic=False),
    Setting("super.users", Text(65536), "",
        "Principals that may do everything, separated by semicolons, such as "
        "`User:admin`.", dynamic=False),
    Setting("allow.everyone.if.no.acl.found", Flag(), "false",
        "Whether a resource that no ACL rule names is open to everyone.", dynamic=False),
    Setting("audit.log.allowed", Flag(), "false",
        "Whether allowed requests are in the log too, at a cost. Denied ones always "
        "are.", dynamic=False),
    Setting("audit.topic", TopicName(), "",
        "Topic to which brokers append audit records, created if missing; empty is "
        "none.", dynamic=False),
    Setting("audit.topic.allowed", Flag(), "false",
        "Whether allowed requests and successful SASL authentications are in `audit.topic` too, at "
        "a cost. Denied ones always are.", dynamic=False),
)  # fmt: skip
