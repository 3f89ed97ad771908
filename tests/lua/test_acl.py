"""Check lua/acl: rules are added and deleted exactly as given; a change raises their version."""

import pytest

from tests.lua.partition import KEYS
from tests.support.store_runners import Runner

RULES = [b'["TOPIC","a"]', b'["TOPIC","b"]', b'["GROUP","\xc3\xa4"]']


def stored(runner: Runner) -> set[object]:
    names = runner.command("HKEYS", KEYS.acls())
    assert isinstance(names, list)
    return set(names) - {b":version"}


def test_created_rules_are_stored_and_counted_once(runner: Runner) -> None:
    first = runner.run(KEYS.acl_create(RULES))
    assert (first.created, stored(runner)) == (3, set(RULES))
    again = runner.run(KEYS.acl_create([RULES[0], b"new", b"new"]))
    assert (again.created, len(stored(runner))) == (1, 4)
    assert again.version > first.version


def test_a_call_that_changes_no_rule_keeps_the_version(runner: Runner) -> None:
    assert runner.run(KEYS.acl_delete(RULES)).version == 0
    version = runner.run(KEYS.acl_create(RULES)).version
    assert runner.run(KEYS.acl_create(RULES)).version == version
    assert runner.run(KEYS.acl_delete([b"missing"])).version == version
    assert runner.run(KEYS.acl_create([])).created == 0


def test_deleted_rules_are_reported_one_by_one(runner: Runner) -> None:
    version = runner.run(KEYS.acl_create(RULES)).version
    reply = runner.run(KEYS.acl_delete([RULES[1], b"missing", RULES[1], RULES[2]]))
    assert reply.deleted == [1, 0, 0, 1]
    assert reply.version > version
    assert stored(runner) == {RULES[0]}


@pytest.mark.parametrize("count", [9000])
def test_a_call_takes_thousands_of_rules(runner: Runner, count: int) -> None:
    rules = [b"rule %d" % number for number in range(count)]
    assert runner.run(KEYS.acl_create(rules)).created == count
    assert sum(runner.run(KEYS.acl_delete(rules)).deleted) == count
