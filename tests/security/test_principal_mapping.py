"""Check ssl.principal.mapping.rules; the expected results are those of Kafka 4.3."""

import pytest

from korvet.config.setting import ConfigError
from korvet.security.certificate import PrincipalMapping

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
