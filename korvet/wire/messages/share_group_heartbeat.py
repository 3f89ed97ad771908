"""ShareGroupHeartbeat (key 76): join, stay in or leave a share group (KIP-932).

The member chooses its own id. Null means unchanged since the last heartbeat. Version 0 was of a
preview and no longer exists.
"""

from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from korvet.wire.schema import Message, i32, request, response


@request(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: i32
    """0 joins, -1 leaves."""
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@response(ShareGroupHeartbeatRequest)
class ShareGroupHeartbeatResponse(ConsumerGroupHeartbeatResponse):
    """The fields are those of a consumer group."""
