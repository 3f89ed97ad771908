"""Check that a call that breaks its script's header fails with the reason, and writes nothing."""

from collections.abc import Iterator, Sequence

import pytest
import redis

from korvet.scripts import bundle
from korvet.scripts.contract import CHECKS_ITSELF, Row
from tests.support.redis_servers import TestServer


def given(rows: Sequence[Row]) -> list[str]:
    """Return a word for each row, and two for repeated ones."""
    fixed = ["1" if row.type == "int" else row.name for row in rows if not row.repeated]
    return fixed + 2 * [row.name for row in rows if row.repeated]


def wrong_calls(name: str) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield KEYS and ARGV that the header does not allow, and the error text."""
    contract = bundle.load(name).contract
    keys, args = given(contract.keys), given(contract.args)
    repeated = [sum(row.repeated for row in rows) for rows in (contract.keys, contract.args)]
    takes = f"{name} takes "
    if repeated[0] != 1:
        yield keys[:-1], args, takes
        yield [*keys, *["more"] * (1 + contract.takes_absent_key)], args, takes
    yield [], args, takes
    if repeated[1] != 1:
        yield keys, [*args, "more"], takes
    if repeated[1] != 1 and args:
        yield keys, args[:-1], takes
    for at, row in enumerate(contract.args):
        if row.type == "int" and not row.repeated and name != CHECKS_ITSELF:
            for garbage in ("", "x", "1.5", "nan", "inf", "1e9", "0x10", " 1", "1-"):
                wrong = [*args[:at], garbage, *args[at + 1 :]]
                yield keys, wrong, f"{name}: ARGV[{at + 1}], {row.name}, is no integer"


@pytest.mark.parametrize("name", bundle.names())
def test_a_wrong_call_fails_with_the_reason_and_writes_nothing(
    name: str, redis_server: TestServer
) -> None:
    with redis_server.client() as client:
        sha1 = client.script_load(bundle.load(name).text)
        for keys, args, said in wrong_calls(name):
            if not keys and all(row.repeated for row in bundle.load(name).contract.keys):
                continue
            with pytest.raises(redis.ResponseError) as caught:
                client.evalsha(sha1, len(keys), *keys, *args)
            assert said in str(caught.value)
        assert client.dbsize() == 0
