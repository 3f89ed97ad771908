"""Which of Redis's errors pass, whichever server words them."""

import pytest

from korvet.store import errors

_IN_6_2 = (
    "ERR Error running script (call to f_6e): @user_script:1: @user_script: 1: "
    "-READONLY You can't write against a read only replica. "
)
_IN_7 = "READONLY You can't write against a read only replica. script: 6e, on @user_script:1."
_AGAIN = "ERR " + _IN_7


@pytest.mark.parametrize("message", [_IN_6_2, _IN_7, _AGAIN])
def test_a_replica_is_known_by_what_a_script_met_there(message: str) -> None:
    assert errors.code_of(message) in errors.A_REPLICA
    assert errors.passing(message)


def test_an_error_of_a_script_itself_does_not_pass() -> None:
    assert errors.code_of("ERR user_script:3: attempt to index a nil value") == "ERR"
    assert not errors.passing("ERR user_script:3: attempt to index a nil value")
    assert errors.code_of("ERR OOMPH is no word of Redis's") == "ERR"
