"""Certificates for tests: an authority, and what it signs."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Certificate:
    """A certificate with its key; `chain` are those of the authorities between it and the root."""

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, chain: str = ""
    ) -> None:
        self.certificate = certificate
        self.key = key
        self.chain = chain

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        hidden: Any = serialization.NoEncryption()
        if password:
            hidden = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden
        ).decode()

    def write(self, path: Path, password: str | None = None) -> Path:
        """Write key and chain into one file."""
        path.write_text(self.key_pem(password) + self.pem + self.chain)
        return path


class Authority(Certificate):
    """A certificate authority."""

    @classmethod
    def make(cls, name: str = "test authority") -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = named(name)
        found = _builder(subject, subject, key, ca=True).sign(key, hashes.SHA256())
        return cls(found, key)

    def sign(
        self,
        subject: x509.Name | str,
        *,
        ca: bool = False,
        usage: tuple[Any, ...] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
        starts: timedelta = -DAY,
        ends: timedelta = DAY,
        names: tuple[str, ...] = ("localhost",),
    ) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        if isinstance(subject, str):
            subject = named(subject)
        builder = _builder(subject, self.certificate.subject, key, ca=ca, starts=starts, ends=ends)
        if not ca:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            alternatives = [*map(x509.DNSName, names), x509.IPAddress(IPv4Address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        chain = self.pem + self.chain if self.certificate.issuer != self.certificate.subject else ""
        return Authority(builder.sign(self.key, hashes.SHA256()), key, chain)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    starts: timedelta = -DAY,
    ends: timedelta = DAY,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + starts)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
