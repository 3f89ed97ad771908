"""The broker's settings of TLS, under Kafka's names if Kafka has one."""

import re

import msgspec

from korvet.config.setting import Flag, Kind, OneOf, Setting, SomeOf, Text, Type, Whole, Words

VERSIONS = ("TLSv1.2", "TLSv1.3")
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


def _row(
    name: str, type_: Type, default: str | None, sentence: str, *, sensitive: bool = False
) -> Setting:
    return Setting(
        name, type_, default, sentence, dynamic=False, per_listener=True, sensitive=sensitive
    )


ROWS = (
    _row("ssl.keystore.type", PemType(), "PEM", "Type of the key store: PEM."),
    _row("ssl.keystore.location", Text(4096), None,
        "PEM file with the private key and the certificate chain of the broker, its own "
        "certificate first. The file is read again when it changes."),
    _row("ssl.keystore.key", Pem(), None,
        "Private key in PEM, in place of ssl.keystore.location.", sensitive=True),
    _row("ssl.keystore.certificate.chain", Pem(), None,
        "Certificate chain in PEM, with ssl.keystore.key; the broker's own certificate first."),
    _row("ssl.key.password", Text(), None,
        "Password of an encrypted private key.", sensitive=True),
    _row("ssl.truststore.type", PemType(), "PEM", "Type of the trust store: PEM."),
    _row("ssl.truststore.location", Text(4096), None,
        "PEM file with the certificates that sign those of clients. The file is read again when it "
        "changes."),
    _row("ssl.truststore.certificates", Pem(), None,
        "Certificates in PEM, in place of ssl.truststore.location."),
    _row("ssl.client.auth", OneOf(("none", "requested", "required")), "none",
        "Whether a client must have a certificate; a SASL_SSL listener uses only its own value, "
        "`listener.name.NAME.ssl.client.auth`."),
    _row("ssl.enabled.protocols", SomeOf(VERSIONS), ",".join(VERSIONS),
        "TLS versions that clients may use."),
    _row("ssl.cipher.suites", Words(), "",
        "Cipher suites that clients may use, by their IANA or OpenSSL names; empty are OpenSSL's."),
    _row("ssl.principal.mapping.rules", Text(65536), "DEFAULT",
        "Rules from a certificate's distinguished name to a principal: "
        "RULE:PATTERN/REPLACEMENT/[LU], or DEFAULT for the name itself; the first match decides."),
    _row("ssl.allow.dn.changes", Flag(), "false",
        "Whether a changed key store may have another subject."),
    _row("ssl.allow.san.changes", Flag(), "false",
        "Whether a changed key store may lack some of the subject alternative names."),
    _row("ssl.handshake.timeout.ms", Whole(1), "10000",
        "A connection whose TLS handshake takes longer is closed, in milliseconds."),
)  # fmt: skip
