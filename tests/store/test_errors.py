"""Check which of Redis's errors are transient, in the words of each server."""

import pytest

from korvet.store import errors

_IN_6_2 = (
    "ERR Error running script (call to f_6e): @user_script:1: @user_script: 1: "
    "-READONLY You can't write against a read only replica. "
)
_IN_7 = "READONLY You can't write against a read only replica. script: 6e, on @user_script:1."
_AGAIN = "ERR " + _IN_7


@pytest.mark.parametrize("message", [_IN_6_2, _IN_7, _AGAIN])
def test_a_replica_is_found_by_the_error_of_a_script(message: str) -> None:
    assert errors.code_of(message) in errors.REPLICA_CODES
    assert errors.is_transient(message)


def test_an_error_of_a_script_itself_is_not_transient() -> None:
    assert errors.code_of("ERR user_script:3: attempt to index a nil value") == "ERR"
    assert not errors.is_transient("ERR user_script:3: attempt to index a nil value")
    assert errors.code_of("ERR OOMPH is no word of Redis's") == "ERR"


_REFUSED = "Redis at h:1 refused user or password"
ADVICE = {
    "Redis at h:1 refused CLIENT: NOAUTH Authentication required.": "redis://:PASSWORD@HOST:PORT.",
    f"{_REFUSED}: Authentication required.": "redis://:PASSWORD@HOST:PORT.",
    f"{_REFUSED}: invalid username-password pair or user is disabled.": "redis://USER:",
    _IN_7.replace(
        "6e", "6e" * 20
    ): "You can't write against a read only replica; this is a replica",
    "OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:1.": (
        "'maxmemory'; raise its maxmemory, or delete topics or records."
    ),
    "MISCONF Errors writing to the AOF file: No space left on device script: on @user_script:1.": (
        "left on device; make room on the disk of its append-only file."
    ),
    "This instance has cluster support disabled": "; it is one server, no cluster: redis://",
    "no Sentinel at h:1/m names a master 'm'": "'; name one that they watch",
    "no answer from Redis: Connection closed by server.": "is it a Redis that listens there?",
    "no answer from Redis: Error 111 connecting to h:1. Connection refused.": "start it, or give",
    "Redis at h:1 is 5.0: 6.2 is needed": "6.2 is needed.",
}


@pytest.mark.parametrize("message", ADVICE)
def test_an_error_says_what_to_do(message: str) -> None:
    said = errors.advice_for(errors.StoreError(message))
    assert ADVICE[message] in said and said.count(".") <= 1 + message.count(".")
    assert said[-1] in ".?" and " script: " not in said
