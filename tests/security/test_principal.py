"""Check how principals are written."""

import pytest

from korvet.security.session import ANONYMOUS, Principal


def test_a_principal_is_written_as_type_and_name() -> None:
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_a_principal_without_type_or_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME"):
        Principal.parse(text)
