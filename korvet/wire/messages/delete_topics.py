"""DeleteTopics (key 20): delete topics, by name or, from version 6 on, by id."""

from typing import Annotated

from korvet.wire.schema import ZERO_UUID, Field, Message, i16, i32, request, response, uuid


class DeleteTopicState(Message):
    name: str | None = None
    topic_id: uuid = ZERO_UUID


@request(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsRequest(Message):
    topics: Annotated[list[DeleteTopicState], Field(since=6)] = []
    topic_names: Annotated[list[str], Field(until=5)] = []
    timeout_ms: i32


class DeletableTopicResult(Message):
    name: Annotated[str | None, Field(nullable_since=6)]
    topic_id: Annotated[uuid, Field(since=6)] = ZERO_UUID
    error_code: i16 = 0
    error_message: Annotated[str | None, Field(since=5)] = None


@response(DeleteTopicsRequest)
class DeleteTopicsResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    responses: list[DeletableTopicResult]
