"""Move clients to the other brokers before this one stops.

Rules
- The broker first leaves the broker list. Metadata and FindCoordinator then name the others, which
  follow the list's channel.
- After SETTLE_S, requests that only a leader or a coordinator takes are answered with Kafka's
  retriable error for a moved one. Clients look up the other brokers and repeat the request there:
  no connection breaks while a client needs it.
- Requests with acks=0, commits and LeaveGroup are still served: the first have no response, the
  others often end a client.
- Without another broker there is nothing to move to: requests are served until the broker stops.
"""

from collections.abc import Awaitable, Sized
from time import monotonic
from typing import Any

import anyio

from korvet.apis import Api
from korvet.broker.error_responses import refused
from korvet.cluster.registration import REST_S, BrokerRegistration
from korvet.context import Interceptor, Services
from korvet.errors import ErrorCode
from korvet.wire.schema import Message

SETTLE_S = REST_S + 0.1
"""Seconds until all brokers have read the list without this one."""
QUIET_S = 0.6
"""Seconds without a moved request after which the clients count as moved: longer than the default
wait of a Fetch."""
HEARTBEAT_S = 3.2
"""Min seconds if there are group members: a heartbeat, every 3 s by default, moves them."""
HANDOVER_S = 4.0
"""Max seconds."""
CHECK_S = 0.1

MOVED = dict.fromkeys(
    ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "ShareFetch", "ShareAcknowledge"),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
) | dict.fromkeys(
    ("JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat",
     "StreamsGroupHeartbeat", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    ErrorCode.NOT_COORDINATOR,
)  # fmt: skip
"""The error for each API whose requests move their clients."""
MEMBERS = (
    "Heartbeat",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
)


class Handover:
    """Answers requests that other brokers shall take."""

    def __init__(self, earlier: Interceptor | None) -> None:
        self._earlier = earlier
        self.moved_at = monotonic()

    def __bool__(self) -> bool:
        return True

    def response(self, api: Api, request: Any) -> Awaitable[Message | None] | None:
        """Return the error of a request that moves its client, None for any other."""
        error = MOVED.get(api.name)
        if error is None or getattr(request, "acks", 1) == 0:
            return self._earlier.response(api, request) if self._earlier else None
        self.moved_at = monotonic()
        return _answer(api, request, error)


async def _answer(api: Api, request: Any, error: ErrorCode) -> Message | None:
    top = ErrorCode.NONE if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    return refused(api, request, error, top=top)


async def move_clients(services: Services, connections: Sized) -> None:
    """Move the clients to the other brokers, for at most HANDOVER_S after SETTLE_S."""
    if not has_others(services.registration) or not connections:
        return
    await anyio.sleep(SETTLE_S)
    handover = Handover(services.interceptor)
    services.interceptor = handover
    served = services.metrics.requests.values
    has_members = any(api in MEMBERS for api, _ in served)
    began = monotonic()
    at_least, at_most = HEARTBEAT_S if has_members else QUIET_S, HANDOVER_S
    while connections and monotonic() - began < at_most:
        is_quiet = monotonic() - handover.moved_at >= QUIET_S
        if is_quiet and monotonic() - began >= at_least:
            return
        await anyio.sleep(CHECK_S)


def has_others(registration: BrokerRegistration) -> bool:
    """Return whether clients of each listener of this broker find another one."""
    mine = {endpoint.listener for endpoint in registration.me.endpoints}
    others = [other for other in registration.brokers if other.id != registration.me.id]
    found = (endpoint.listener for other in others for endpoint in other.endpoints)
    return bool(mine) and mine <= set(found)
