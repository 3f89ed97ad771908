"""Check that the encoding of a long response does not delay other connections."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from korvet import apis
from korvet.broker import dispatch
from korvet.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from korvet.wire.schema import Message, encode_parts


@pytest.mark.parametrize("rows", [1, dispatch.MANY_ROWS, dispatch.MANY_ROWS + 1])
async def test_long_responses_are_encoded_in_one_thread_off_the_event_loop(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def encoding(response: Message, version: int) -> Any:
        threads.append(threading.current_thread().name)
        return encode_parts(response, version)

    monkeypatch.setattr(dispatch, "encode_parts", encoding)
    listed = [ListedGroup(group_id=f"g{number}", protocol_type="") for number in range(rows)]
    long_response = ListGroupsResponse(error_code=0, groups=listed)

    async def answer() -> Message:
        return long_response

    node: Any = SimpleNamespace(metrics=SimpleNamespace(answered=lambda *_: None))

    def finished() -> Any:
        request = dispatch.Request(apis.BY_KEY[16], 0, 7, "me", answer(), None, 0.0)
        return dispatch.finish(request, node)

    content = b"".join(encode_parts(long_response, 0))
    for sent in await asyncio.gather(*(finished() for _ in range(5))):
        assert sent is not None
        assert b"".join(sent) == (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\7" + content
    (thread,) = set(threads)
    assert thread == ("MainThread" if rows <= dispatch.MANY_ROWS else "encoder_0")
