"""DeleteShareGroupOffsets (key 92): delete an empty share group's state of topics (KIP-932)."""

from korvet.wire.schema import ErrorResponse, Message, i16, request, response, uuid


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str


@request(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: uuid
    error_code: i16 = 0
    error_message: str | None = None


@response(DeleteShareGroupOffsetsRequest)
class DeleteShareGroupOffsetsResponse(ErrorResponse):
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
