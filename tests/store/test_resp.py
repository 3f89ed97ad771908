"""Check commands as buffers: the bytes of one piece, and no copy of a big argument."""

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from korvet.scripts.call import Arg
from korvet.store.errors import ValueTooLarge
from korvet.store.resp import BIG, MANY, Packer, pack_arguments

arguments = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.text(max_size=20),
        st.integers(-(2**63), 2**63),
        st.binary(max_size=20).map(bytearray),
        st.binary(max_size=20).map(memoryview),
        st.integers(BIG - 2, BIG + 2).map(bytes),
    ),
    min_size=1,
    max_size=2 * MANY,
)


def plain(arg: Arg) -> bytes:
    return str(arg).encode() if isinstance(arg, str | int) else bytes(arg)


@given(st.lists(arguments, max_size=4))
def test_a_pipeline_is_its_commands_in_order(commands: list[list[Arg]]) -> None:
    packer = Packer()
    sizes = [packer.add(command) for command in commands]
    expected = [hiredis.pack_command(tuple(map(plain, command))) for command in commands]
    assert b"".join(packer.take()) == b"".join(expected)
    assert all(size >= 0.5 * len(text) for size, text in zip(sizes, expected, strict=True))
    assert packer.take() == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_big_argument_is_not_copied(kind: type) -> None:
    payload = kind(bytes(BIG))
    packer = Packer()
    packer.add(("SET", "key", payload))
    packer.add(("PING",))
    head, body, tail = packer.take()
    assert head.endswith(b"$%d\r\n" % BIG)
    assert body is payload or (isinstance(body, memoryview) and body.obj is memoryview(payload).obj)
    assert tail == b"\r\n*1\r\n$4\r\nPING\r\n"


def test_small_commands_of_an_iteration_are_one_piece() -> None:
    packer = Packer()
    for n in range(100):
        packer.add(("SET", f"key{n}", n))
    assert len(packer.take()) == 1


def test_a_view_of_wider_items_counts_in_bytes() -> None:
    packer = Packer()
    packer.add(("SET", "key", memoryview(bytes(8)).cast("I")))
    assert b"".join(packer.take()).endswith(b"$8\r\n" + bytes(8) + b"\r\n")


def test_a_value_above_the_servers_limit_leaves_nothing_to_send() -> None:
    packer = Packer()
    packer.longest = 100
    packer.add(("SET", "k", b"v" * 100))
    for value in (b"v" * 101, "v" * 101, memoryview(b"v" * BIG)):
        for many in ((), ("x",) * MANY):
            with pytest.raises(ValueTooLarge):
                packer.add(("SET", "k", value, *many))
        with pytest.raises(ValueTooLarge):
            packer.add(("SET", pack_arguments(("k", value, 1))))
    packer.add(("SET", *("k",) * 200))
    assert b"".join(packer.take()).count(b"SET") == 2


@given(arguments, arguments)
def test_packed_arguments_are_sent_in_their_place(head: list[Arg], rest: list[Arg]) -> None:
    packer = Packer()
    head = [plain(arg) for arg in head]
    sizes = [
        packer.add(command) for command in (("PING",), (*head, pack_arguments(rest)), ("PING",))
    ]
    expected = hiredis.pack_command((*head, *map(plain, rest)))
    ping = hiredis.pack_command(("PING",))
    assert b"".join(packer.take()) == ping + expected + ping
    assert abs(sizes[1] - len(expected)) < 30
