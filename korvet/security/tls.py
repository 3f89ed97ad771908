"""TLS contexts of a listener: made from PEM files, and made again when the files change.

Rules
- New connections use the new context; open ones keep theirs.
- Files that changed are read once they stay unchanged from one check to the next: a key and its
  certificate are written one after the other.
- Files that cannot be used leave the current context in use, with one log line for each change. As
  in Kafka, so do another subject and missing alternative names, unless the settings allow them.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from korvet.base import logfmt
from korvet.config.listeners import Listener
from korvet.config.setting import ConfigError
from korvet.config.values import Settings
from korvet.security.certificate import PrincipalMapping, alternative_names, subject_der, subject_of
from korvet.security.session import ANONYMOUS, Principal


def file_state(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when the file does; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


CHECK_S = 1.0
"""Interval between two checks of the files."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NEWER_SUITES = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
"""The cipher suites of TLS 1.3 that OpenSSL offers."""
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_ADVICE = {
    b"\xfe": "JKS and not PEM: convert it with `keytool -importkeystore -deststoretype PKCS12`, "
    "and the result with `openssl pkcs12 -in FILE -out FILE.pem -nodes`",
    b"\x30": "PKCS12 and not PEM: convert it with `openssl pkcs12 -in FILE -out FILE.pem -nodes`",
}
"""What a file is that begins with this byte, and how it becomes PEM."""

Identity: TypeAlias = tuple[bytes, set[bytes]]
"""Subject and alternative names of a certificate, as encoded."""

log = logfmt.get("security.tls")


class ListenerTls:
    """The current TLS context of a listener, and the principals of its clients.

    Raises ConfigError if the settings make no context.
    """

    def __init__(self, listener: Listener, settings: Settings) -> None:
        self._name = listener.name
        self._sasl = listener.sasl
        self._settings = settings.of_listener(listener.name)
        self._auth = self._settings.text("ssl.client.auth")
        if listener.sasl and not settings.is_own(listener.name, "ssl.client.auth"):
            self._auth = "none"  # KIP-684
        self._mapping = PrincipalMapping(self._settings.text("ssl.principal.mapping.rules"))
        self._files = [
            Path(path)
            for name in ("ssl.keystore.location", "ssl.truststore.location")
            if (path := self._settings.text_of(name))
        ]
        self._seen = self._used = self._states()
        self._identity: Identity
        self.context = self._make()
        self.handshake_timeout_s = self._settings.integer("ssl.handshake.timeout.ms") / 1000

    def principal(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client's certificate, None if no mapping rule matches.

        The principal of a SASL listener's client is that of SASL.
        """
        if certificate is None or self._sasl:
            return ANONYMOUS
        name = self._mapping.apply(subject_of(certificate))
        return None if name is None else Principal("User", name)

    def refresh(self) -> None:
        """Make a new context if the files changed since the last one and are complete."""
        now = self._states()
        is_stable, self._seen = now == self._seen, now
        if not is_stable or now == self._used:
            return
        self._used = now
        before = self._identity
        try:
            context = self._make()
            self._refuse_changes(before)
        except ConfigError as error:
            self._identity = before
            log.error(
                "TLS files not usable, keeping the ones in use",
                listener=self._name,
                reason=str(error),
            )
        else:
            self.context = context
            log.info("TLS files read again", listener=self._name)

    def _states(self) -> list[tuple[int, int, int] | None]:
        return list(map(file_state, self._files))

    def _make(self) -> ssl.SSLContext:
        """Return a context from the settings and files. Raises ConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        self._set_versions(context)
        self._load_key(context)
        self._load_trusted(context)
        return context

    def _set_versions(self, context: ssl.SSLContext) -> None:
        versions = set(self._settings.words("ssl.enabled.protocols"))
        suites = set(self._settings.words("ssl.cipher.suites"))
        if suites:
            newer, older = suites & _NEWER_SUITES, suites - _NEWER_SUITES
            if newer and newer != _NEWER_SUITES and "TLSv1.3" in versions:
                raise ConfigError(
                    "ssl.cipher.suites must have all of "
                    f"{', '.join(sorted(_NEWER_SUITES))} or none: TLS 1.3 offers them together."
                )
            versions -= {"TLSv1.2" if not older else "", "TLSv1.3" if not newer else ""}
            if older:
                self._set_ciphers(context, older)
        if not versions:
            raise ConfigError("ssl.cipher.suites has no suite of ssl.enabled.protocols: add one.")
        context.minimum_version = min(_VERSIONS[name] for name in versions)
        context.maximum_version = max(_VERSIONS[name] for name in versions)

    def _set_ciphers(self, context: ssl.SSLContext, suites: set[str]) -> None:
        for suite in suites:
            try:
                context.set_ciphers(openssl_name(suite))
            except ssl.SSLError:
                raise ConfigError(f"ssl.cipher.suites: OpenSSL has no suite {suite!r}.") from None
        context.set_ciphers(":".join(map(openssl_name, suites)))

    def _load_key(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        location = settings.text_of("ssl.keystore.location")
        key, chain = (
            settings.text_of(name) and settings.text(name)
            for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain")
        )
        if not location and not (key and chain):
            raise ConfigError(
                f"listener {self._name} needs a certificate: set ssl.keystore.location, or "
                "ssl.keystore.key and ssl.keystore.certificate.chain."
            )
        text = _read_pem(location, "ssl.keystore.location") if location else f"{chain}\n{key}"
        password = settings.text_of("ssl.key.password") or ""
        with _pem_file(text) as path:
            try:
                context.load_cert_chain(path, password=lambda: password)
            except (ssl.SSLError, OSError, ValueError) as error:
                what = location or "ssl.keystore.key"
                raise ConfigError(
                    f"{what} has no usable key and certificate: {_reason(error)}; check that they "
                    "belong together, and ssl.key.password."
                ) from None
            self._identity = _identity_of(text)

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        context.verify_mode = _VERIFY[self._auth]
        location = self._settings.text_of("ssl.truststore.location")
        if location:
            trusted = _read_pem(location, "ssl.truststore.location")
        elif self._settings.text_of("ssl.truststore.certificates"):
            trusted = self._settings.text("ssl.truststore.certificates")
        elif self._auth == "none":
            return
        else:
            raise ConfigError(
                f"ssl.client.auth={self._auth} of listener {self._name} needs the certificates "
                "that sign those of clients: set ssl.truststore.location."
            )
        # As in Java, each trusted certificate ends a chain, not only a self-signed one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=trusted)
        except (ssl.SSLError, ValueError) as error:
            what = location or "ssl.truststore.certificates"
            raise ConfigError(f"{what} has no usable certificate: {_reason(error)}.") from None

    def _refuse_changes(self, before: Identity) -> None:
        """Raise ConfigError if the new certificate is of another subject than the old one."""
        (old, old_names), (new, new_names) = before, self._identity
        if old != new and not self._settings.flag("ssl.allow.dn.changes"):
            raise ConfigError("the certificate has another subject: ssl.allow.dn.changes is false")
        if not old_names <= new_names and not self._settings.flag("ssl.allow.san.changes"):
            raise ConfigError(
                "the certificate lacks alternative names: ssl.allow.san.changes is false"
            )


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 that is named as by IANA."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = (
        cipher.replace("AES_", "AES").replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    )
    return f"{exchange}_{cipher}".removeprefix("RSA_").replace("_", "-")


def _read_pem(location: str, setting: str) -> str:
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting} {location} cannot be read: {error.strerror}.") from None
    if b"-----BEGIN" in data:
        return data.decode("utf-8", "replace")
    advice = _ADVICE.get(data[:1], "not PEM: it must have -----BEGIN lines")
    raise ConfigError(f"{setting} {location} is {advice}.")


@contextmanager
def _pem_file(text: str) -> Iterator[str]:
    """Yield the path of a file with that text, readable by this user only: OpenSSL reads files."""
    memory = Path("/dev/shm")
    with ExitStack() as stack:
        folder = str(memory) if os.access(memory, os.W_OK) else None
        file = stack.enter_context(tempfile.NamedTemporaryFile("w", dir=folder, suffix=".pem"))
        file.write(text)
        file.flush()
        yield file.name


def _identity_of(text: str) -> Identity:
    """Return the subject and the alternative names of the first certificate."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = text[text.index(begin) : text.index(end) + len(end)]
    certificate = ssl.PEM_cert_to_DER_cert(first)
    return subject_der(certificate), alternative_names(certificate)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
