"""Check that the end of a reply is found where hiredis finds it, in pieces of any size."""

import hiredis
import pytest

from korvet.store.resp import BadReply, end_of

REPLIES = (
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-12\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$7\r\na\r\n$5\r\n\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*2\r\n*1\r\n$3\r\nabc\r\n*2\r\n:1\r\n$-1\r\n",
    b"*3\r\n+a\r\n*0\r\n$2\r\n\r\n\r\n",
)


@pytest.mark.parametrize("reply", REPLIES)
def test_the_end_is_found_once_all_bytes_are_there(reply: bytes) -> None:
    before, behind = b"$9\r\n", b"+next\r\n"
    view = memoryview(before + reply + behind)
    at, whole = len(before), len(before) + len(reply)
    for end in range(at, whole):
        assert end_of(view, at, end) == -1
    for end in range(whole, len(view) + 1):
        assert end_of(view, at, end) == whole
    parser = hiredis.Reader()
    parser.feed(reply)
    parser.gets()
    assert not parser.has_data()


@pytest.mark.parametrize("reply", [b"OK\r\n", b"\r\n", b"$x\r\n", b"*1\r\n!", b"$\r\n"])
def test_what_is_no_reply_is_refused(reply: bytes) -> None:
    with pytest.raises(BadReply):
        end_of(memoryview(reply), 0, len(reply))
