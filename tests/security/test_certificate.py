"""Check names of certificates, and the principals that rules make of them.

The expected texts are those of Java's X500Principal, and the results those of Kafka 4.3.
"""

import pytest

from korvet.config.setting import ConfigError
from korvet.security.certificate import PrincipalMapping, alternative_names, name_text, subject_of
from korvet.security.session import ANONYMOUS, Principal
from tests.support.certificates import Authority

NAMES = [
    (
        "302d310b3009060355040613024445310d300b060355040a0c0441636d65310f300d06035504030c06636c69656e74",
        "CN=client,O=Acme,C=DE",
    ),
    (
        "301a3118301606035504030c0f612c622b6322645c653c663e673b68",
        'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h',
    ),
    ("3010310e300c06035504030c05613d622363", "CN=a\\=b\\#c"),
    ("30183116301406035504030c0d2074776f2020626c616e6b7320", "CN=\\ two  blanks\\ "),
    ("3011310f300d06035504030c06236669727374", "CN=\\#first"),
    ("30193117301506035504030c0e4ac3bc7267656e20e697a5e69cac", "CN=J\u00fcrgen \u65e5\u672c"),
    (
        "304231133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d706c6531123010060a0992268993f22c6401010c027531",
        "UID=u1,DC=example,DC=org",
    ),
    (
        "302d311c301a06092a864886f70d010901160d61406578616d706c652e6f7267310d300b06035504030c046d61696c",
        "CN=mail,1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267",
    ),
    (
        "3034310b3009060355040513023432310b3009060355040c0c024472310c300a060355042a0c03416461310a300806035504040c014c",
        "2.5.4.4=#0c014c,2.5.4.42=#0c03416461,2.5.4.12=#0c024472,2.5.4.5=#13023432",
    ),
    (
        "303b310f300d06035504090c064d61696e2031310d300b06035504070c04426f6e6e310b300906035504080c024e57310c300a060355040b0c036f7073",
        "OU=ops,ST=NW,L=Bonn,STREET=Main 1",
    ),
    (
        "302b31293008060355040b0c0178300c06035504030c056d756c7469300f060a0992268993f22c6401010c0137",
        "OU=x+CN=multi+UID=7",
    ),
    (
        "30203112301006092b06010401868d1f070c036f776e310a300806035504030c017a",
        "CN=z,1.3.6.1.4.1.99999.7=#0c036f776e",
    ),
    (
        "302231123010060355040313097072696e7461626c65310c300a060355040a1603696135",
        "O=ia5,CN=printable",
    ),
    ("301b3119301706035504030c10612f623a632a643f6540662767286829", "CN=a/b:c*d?e@f'g(h)"),
    ("3011310f300d06035504030c066e756c00696e", "CN=nul\\00in"),
    ("300c310a300806035504030c0120", "CN=\\ "),
    ("30183116301406035504030c0d746162096e65770a6c696e650d", "CN=tab\u0009new\u000aline\\\u000d"),
    ("3000", ""),
    ("3011310f300d06035504031e060062006d0070", "CN=\\00b\\00m\\00p"),
    ("300c310a30080603550403020105", "CN=#020105"),
    ("300f310d300b06035504031404743631e9", "CN=t61\ufffd"),
    ("300b3109300706035504030c00", "CN="),
]


@pytest.mark.parametrize(("name", "text"), NAMES)
def test_a_name_is_written_as_by_java(name: str, text: str) -> None:
    assert name_text(bytes.fromhex(name)) == text


@pytest.mark.parametrize("name", ["30", "3005", "3080", "3084ffffffff"])
def test_a_name_that_is_cut_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="DER"):
        name_text(bytes.fromhex(name))


def test_subject_and_alternative_names_are_read_from_a_certificate() -> None:
    certificate = Authority.make().sign("one", names=("a", "b")).der
    assert subject_of(certificate) == "CN=one"
    assert len(alternative_names(certificate)) == 3
    assert b"\x82\x01a" in alternative_names(certificate)
    assert alternative_names(Authority.make().der) == set()


USERS = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/"
MAPPED = [
    (USERS, "CN=srv,OU=ServiceUsers,O=X", "srv"),
    (USERS, "CN=srv,OU=Other", None),
    (USERS + ",RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT", "CN=Duke,OU=Java", "duke@java"),
    (USERS + ", RULE:^CN=(.*?),OU=(.*?)$/$1@$2/U , DEFAULT", "CN=Duke,OU=Java", "DUKE@JAVA"),
    (USERS + "L,DEFAULT", "CN=Duke,O=Y", "CN=Duke,O=Y"),
    ("DEFAULT", "CN=Duke,O=Y", "CN=Duke,O=Y"),
    ("RULE:(.*)/x$1y/", "CN=a", "xCN=ayxy"),
    ("RULE:CN=(.*)/$1/L", "CN=ABC", "abc"),
    ("RULE:CN=(.*)/$1/L,", "CN=ABC", "abc"),
    ("RULE:CN=(.*)/$2-$1/", "CN=ABC", "$2-ABC"),
    (r"RULE:CN=(.*)/a\/b-$1/", "CN=ABC", "a/b-ABC"),
    (r"RULE:CN=(.*)/\$1/", "CN=ABC", "$1"),
    ("RULE:CN=(?<n>.*)/${n}/", "CN=ABC", "ABC"),
    (r"RULE:CN=a\\,b/ok/", r"CN=a\,b", "ok"),
    (r"RULE:CN=(\w+)/$1/", "CN=Jürgen", None),
]


@pytest.mark.parametrize(("rules", "name", "mapped"), MAPPED)
def test_a_name_is_mapped_as_by_kafka(rules: str, name: str, mapped: str | None) -> None:
    assert PrincipalMapping(rules).apply(name) == mapped


@pytest.mark.parametrize(
    "rules",
    ["RULE:CN=(.*)/$1", "RULE:a/b/X", "RULE:a/b/LU", "RULE:CN=(/$1/", "x", "DEFAULT,x"],
)
def test_an_invalid_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


def test_a_principal_is_written_as_type_and_name() -> None:
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_a_principal_without_type_or_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME"):
        Principal.parse(text)
