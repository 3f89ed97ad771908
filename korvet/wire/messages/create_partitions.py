"""CreatePartitions (key 37): give topics more partitions. `count` is the new total."""

from korvet.wire.schema import Message, Response, i16, i32, request, response


class CreatePartitionsAssignment(Message):
    broker_ids: list[i32]


class CreatePartitionsTopic(Message):
    name: str
    count: i32
    assignments: list[CreatePartitionsAssignment] | None
    """Null: the broker assigns."""


@request(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic]
    timeout_ms: i32
    validate_only: bool


class CreatePartitionsTopicResult(Message):
    name: str
    error_code: i16 = 0
    error_message: str | None = None


@response(CreatePartitionsRequest)
class CreatePartitionsResponse(Response):
    results: list[CreatePartitionsTopicResult]
