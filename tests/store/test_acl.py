"""Test the ACL rule of docs/operations/redis.md on every kind of server."""

import re
from pathlib import Path

from tests.support.redis_servers import TestServer

_ROOT = Path(__file__).parents[2]


def _rules() -> list[str]:
    text = (_ROOT / "docs/operations/redis.md").read_text(encoding="utf-8")
    found = re.search(r"ACL SETUSER korvet (.+)", text)
    assert found
    return found[1].split()


def test_the_user_of_the_docs_may_run_what_scripts_call(redis_server: TestServer) -> None:
    client = redis_server.client()
    rules = _rules()
    client.execute_command("ACL", "SETUSER", "documented", *rules)
    client.execute_command("ACL", "DELUSER", "documented")
    allowed = {rule.removeprefix("+") for rule in rules if rule.startswith("+")}
    for category in [name.removeprefix("@") for name in allowed if name.startswith("@")]:
        names = client.execute_command("ACL", "CAT", category)
        allowed |= {name.decode().partition("|")[0] for name in names}
    called: set[str] = set()
    for file in (_ROOT / "lua").rglob("*.lua"):
        called |= set(re.findall(r'redis\.p?call\("([A-Z]+)"', file.read_text(encoding="utf-8")))
    assert len(called) > 30
    assert {name.lower() for name in called} <= allowed
