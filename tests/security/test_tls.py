"""Check TLS contexts: refused settings and files, and files that change."""

import logging
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from korvet.config.listeners import Listener
from korvet.config.setting import ConfigError
from korvet.config.values import Settings
from korvet.security.session import ANONYMOUS
from korvet.security.tls import ListenerTls, openssl_name
from tests.support.certificates import Authority

LISTENER = Listener("SSL", "SSL")
AUTHORITY = Authority.make()
BROKER = AUTHORITY.sign("broker")


def made(listener: Listener = LISTENER, **settings: str) -> ListenerTls:
    """Return the TLS of a listener; names of settings have `_` for `.`, without `ssl.`."""
    given = {f"ssl.{name.replace('_', '.')}": value for name, value in settings.items()}
    return ListenerTls(listener, Settings(given))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return BROKER.write(tmp_path / "broker.pem")


def test_a_key_store_is_a_file_or_texts(store: Path, tmp_path: Path) -> None:
    made(keystore_location=str(store))
    made(keystore_key=BROKER.key_pem(), keystore_certificate_chain=BROKER.pem)
    one_line = BROKER.key_pem().replace("\n", " ")
    made(keystore_key=one_line, keystore_certificate_chain=BROKER.pem.replace("\n", " "))
    locked = BROKER.write(tmp_path / "locked.pem", "secret")
    made(keystore_location=str(locked), key_password="secret")


REFUSED = [
    ({}, "listener SSL needs a certificate: set ssl.keystore.location"),
    ({"keystore_location": "/nowhere"}, "ssl.keystore.location /nowhere cannot be read: No such"),
    ({"keystore_location": "{jks}"}, "is JKS and not PEM: convert it with `keytool"),
    ({"keystore_location": "{p12}"}, "is PKCS12 and not PEM: convert it with `openssl"),
    ({"keystore_location": "{text}"}, "is not PEM: it must have -----BEGIN lines"),
    ({"keystore_location": "{locked}"}, "has no usable key and certificate:"),
    ({"keystore_location": "{locked}", "key_password": "wrong"}, "check that they belong together"),
    ({"keystore_location": "{mixed}"}, "key values mismatch"),
    ({"keystore_location": "{ca}"}, "has no usable key and certificate"),
    ({"keystore_location": "{ok}", "client_auth": "required"}, "set ssl.truststore.location"),
    ({"keystore_location": "{ok}", "truststore_location": "{text}"}, "is not PEM"),
    ({"keystore_location": "{ok}", "cipher_suites": "TLS_NO"}, "OpenSSL has no suite 'TLS_NO'"),
    ({"keystore_location": "{ok}", "cipher_suites": "TLS_AES_128_GCM_SHA256"}, "offers them toget"),
    ({"keystore_type": "JKS"}, "ssl.keystore.type must be PEM: convert a JKS file to PKCS12 with"),
    ({"keystore_key": "secret"}, "ssl.keystore.key must be PEM: text from -----BEGIN to -----END."),
    ({"keystore_location": "{ok}", "principal_mapping_rules": "x"}, "ssl.principal.mapping.rules"),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_settings_that_make_no_context_are_refused_in_one_sentence(
    tmp_path: Path, store: Path, settings: dict[str, str], sentence: str
) -> None:
    files = {name: tmp_path / name for name in ("jks", "p12", "text", "locked", "mixed", "ca")}
    files["jks"].write_bytes(b"\xfe\xed\xfe\xed0000")
    files["p12"].write_bytes(b"\x30\x82\x01")
    files["text"].write_text("hello")
    BROKER.write(files["locked"], "secret")
    files["mixed"].write_text(AUTHORITY.sign("other").key_pem() + BROKER.pem)
    files["ca"].write_text(AUTHORITY.pem)
    names = {name: str(path) for name, path in files.items()} | {"ok": str(store)}
    with pytest.raises(ConfigError) as refused:
        made(**{name: value.format(**names) for name, value in settings.items()})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_the_names_of_iana_or_openssl(suite: str, name: str) -> None:
    assert openssl_name(suite) == name
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)


def test_cipher_suites_choose_the_versions(store: Path) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = made(keystore_location=str(store), cipher_suites=suite).context
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    older = [row["name"] for row in context.get_ciphers() if row["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize(
    ("protocol", "own", "mode"),
    [
        ("SSL", False, ssl.CERT_REQUIRED),
        ("SASL_SSL", False, ssl.CERT_NONE),
        ("SASL_SSL", True, ssl.CERT_REQUIRED),
    ],
)
def test_a_sasl_listener_asks_for_certificates_only_by_its_own_setting(
    store: Path, protocol: str, own: bool, mode: ssl.VerifyMode
) -> None:
    prefix = f"listener.name.{protocol.lower()}." if own else ""
    settings = {
        "ssl.keystore.location": str(store),
        "ssl.truststore.certificates": AUTHORITY.pem,
        f"{prefix}ssl.client.auth": "required",
    }
    tls = ListenerTls(Listener(protocol, protocol), Settings(settings))
    assert tls.context.verify_mode == mode


def test_the_principal_is_the_mapped_subject_or_anonymous(store: Path) -> None:
    certificate = AUTHORITY.sign("One").der
    assert str(made(keystore_location=str(store)).principal(certificate)) == "User:CN=One"
    rules = "RULE:CN=(One)/$1/L"
    tls = made(keystore_location=str(store), principal_mapping_rules=rules)
    assert str(tls.principal(certificate)) == "User:one"
    assert tls.principal(None) == ANONYMOUS
    assert tls.principal(BROKER.der) is None


def changed(tls: ListenerTls, times: int = 2) -> bool:
    """Check the files `times` times; return whether there is a new context."""
    before = tls.context
    for _ in range(times):
        tls.refresh()
    return tls.context is not before


def replace(path: Path, text: str) -> None:
    """Write a file with a later modification time."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before, before + 1_000_000))


def test_files_that_change_are_read_once_they_are_complete(store: Path) -> None:
    tls = made(keystore_location=str(store))
    assert not changed(tls)
    renewed = AUTHORITY.sign("broker", ends=timedelta(days=9))
    replace(store, renewed.key_pem() + renewed.pem)
    assert not changed(tls, times=1)
    assert changed(tls, times=1)
    assert not changed(tls)


def test_a_changed_trust_store_is_read(store: Path, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_text(AUTHORITY.pem)
    tls = made(keystore_location=str(store), truststore_location=str(trusted))
    replace(trusted, Authority.make().pem)
    assert changed(tls)


OTHER = AUTHORITY.sign("other")
FEWER = AUTHORITY.sign("broker", names=())
KEPT = [
    ("hello", "is not PEM"),
    (BROKER.key_pem(), "has no usable key and certificate"),
    (OTHER.key_pem() + OTHER.pem, "has another subject: ssl.allow.dn.changes is false"),
    (FEWER.key_pem() + FEWER.pem, "lacks alternative names: ssl.allow.san.changes is false"),
    (None, "cannot be read: No such file"),
]


@pytest.mark.parametrize(("text", "reason"), KEPT)
def test_files_that_cannot_be_used_leave_the_old_ones_in_use_with_one_log_line(
    store: Path, caplog: pytest.LogCaptureFixture, text: str | None, reason: str
) -> None:
    tls = made(keystore_location=str(store))
    if text is None:
        store.unlink()
    else:
        replace(store, text)
    with caplog.at_level(logging.INFO, "korvet"):
        assert not changed(tls, times=5)
    (record,) = caplog.records
    assert record.getMessage() == "TLS files not usable, keeping the ones in use"
    assert reason in str(vars(record))
    BROKER.write(store)
    os.utime(store, ns=(0, 0))
    assert changed(tls)


def test_another_subject_may_be_allowed(store: Path) -> None:
    tls = made(keystore_location=str(store), allow_dn_changes="true", allow_san_changes="true")
    for certificate in (OTHER, FEWER):
        replace(store, certificate.key_pem() + certificate.pem)
        assert changed(tls)
