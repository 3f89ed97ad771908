"""Check `korvet acls`: stored rules, lists, refusals."""

import json

import pytest

from tests.cli.conftest import Korvet, texts_of
from tests.support.running_console import RunningConsole, where_of


@pytest.fixture(scope="module")
def broker(guarded_broker: RunningConsole) -> RunningConsole:
    return guarded_broker


@pytest.fixture(params=["brokers", "redis"])
def korvet(
    broker: RunningConsole, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> Korvet:
    """Run `korvet acls` at a broker or on its Redis; return exit code, stdout and stderr."""
    with broker.server.client() as client:
        client.delete(f"{broker.namespace}:acls")
    return texts_of(capfd, where_of(broker, request.param), ["acls"])


ALICE = ("--principal", "User:alice", "--operation", "read", "--operation", "write")


def test_rules_are_added_listed_and_deleted(korvet: Korvet) -> None:
    orders = (*ALICE, "--topic", "orders", "--group", "g")
    assert korvet("add", *orders) == (0, "4 rules added, 0 existed\n", "")
    assert korvet("add", *orders)[1] == "0 rules added, 4 existed\n"
    header, row, *_ = korvet("list")[1].splitlines()
    assert header.startswith("resource\tname\tpattern\tprincipal\t")
    assert row == "group\tg\tliteral\tUser:alice\t*\tread\tallow"
    (first, *_) = json.loads(korvet("list", "--json")[1])
    assert (first["resource"], first["operation"]) == ("group", "read")
    assert korvet("delete", *orders) == (0, "4 rules deleted\n", "")
    assert korvet("delete", *orders)[0] == 1
    assert korvet("list", "--no-header") == (0, "", "")


def test_a_rule_may_deny_a_prefix_to_a_network(korvet: Korvet) -> None:
    options = ("--topic", "pay", "--prefixed", "--host", "10.0.0.0/8", "--deny")
    assert korvet("add", "--principal", "User:*", "--operation", "all", *options)[0] == 0
    _, out, _ = korvet("list", "--no-header")
    assert out == "topic\tpay\tprefixed\tUser:*\t10.0.0.0/8\tall\tdeny\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (ALICE, "no resource is given"),
        (("--topic", "t"), "--principal and --operation are needed"),
        ((*ALICE, "--topic", "t", "--operation", "fly"), "unknown operation 'fly'"),
        (("--principal", "alice", "--operation", "read", "--topic", "t"), "must be TYPE:NAME"),
        ((*ALICE, "--topic", "t", "--host", "10.0.0.0/99"), "is no network"),
    ],
)
def test_an_incomplete_rule_is_refused_in_a_sentence(
    korvet: Korvet, options: tuple[str, ...], sentence: str
) -> None:
    code, _, err = korvet("add", *options)
    assert code == 2 and sentence in err
