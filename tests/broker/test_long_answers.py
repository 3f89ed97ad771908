"""Nobody waits for their answer while somebody's long one is encoded."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from korvet import apis
from korvet.broker import dispatch
from korvet.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from korvet.wire.schema import Message, encode_parts


@pytest.mark.parametrize("rows", [1, dispatch.MANY_ROWS, dispatch.MANY_ROWS + 1])
async def test_a_long_answer_is_encoded_in_a_thread_of_its_own(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def encoding(response: Message, version: int) -> Any:
        threads.append(threading.get_ident())
        return encode_parts(response, version)

    monkeypatch.setattr(dispatch, "encode_parts", encoding)
    listed = [ListedGroup(group_id=f"g{number}", protocol_type="") for number in range(rows)]
    told = ListGroupsResponse(error_code=0, groups=listed)

    async def answer() -> Message:
        return told

    request = dispatch.Request(apis.BY_KEY[16], 0, 7, "me", answer(), None, 0.0)
    node: Any = SimpleNamespace(metrics=SimpleNamespace(answered=lambda *_: None))
    sent = await dispatch.finish(request, node)
    assert sent is not None
    content = b"".join(encode_parts(told, 0))
    assert b"".join(sent) == (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\7" + content
    assert (threads == [threading.get_ident()]) == (rows <= dispatch.MANY_ROWS)
