"""Intercept requests: of a broker that stops, or that is read-only.

A broker moves its clients to the other brokers before it stops.

Rules
- The broker first leaves the broker list. Metadata and FindCoordinator then name the others, which
  follow the list's channel.
- After SETTLE_S, requests that only a leader or a coordinator takes are answered with Kafka's
  retriable error for a moved one. Clients look up the other brokers and repeat the request there:
  no connection breaks while a client needs it.
- Requests with acks=0, commits and LeaveGroup are still served: the first have no response, the
  others often end a client.
- A producer that is not idempotent may have retries=0, and would report the error. It is served for
  SERVED_S from its first request on, and the responses ask for a pause by their throttle time
  (KIP-219): the client sends nothing on the connection meanwhile. Once what it had sent is answered
  and the connection was quiet for CLOSED_S, the broker closes it: no request is lost, and the
  client looks up the leader. A client that does not pause gets the error afterwards.
- Without another broker there is nothing to move to: requests are served until the broker stops.

A read-only broker (`korvet serve --from`) refuses writes with POLICY_VIOLATION. Clients do not
retry it, and it is no authorization error: no ACL rule would permit the request. InitProducerId is
answered: an idempotent producer would otherwise retry that without end, and report no error for its
records.
"""

from collections.abc import Awaitable, Iterable
from time import monotonic
from typing import Any

import anyio
import msgspec

from korvet.apis import Api
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.broker.error_responses import has_response, refused
from korvet.broker.network.open_connections import ClientConnection, OpenConnections
from korvet.cluster.registration import MIN_RENEWAL_GAP_S, BrokerRegistration
from korvet.context import Interceptor
from korvet.security.session import Session
from korvet.wire import records
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.schema import Message

SETTLE_S = MIN_RENEWAL_GAP_S + 0.1
"""Seconds until all brokers have read the list without this one."""
QUIET_S = 0.6
"""Seconds without a moved request after which the clients count as moved: longer than the default
wait of a Fetch."""
HEARTBEAT_S = 3.2
"""Min seconds if there are group members: a heartbeat, every 3 s by default, moves them."""
HANDOVER_S = 4.0
"""Max seconds."""
CHECK_S = 0.1
SERVED_S = 0.6
"""Seconds for which a producer that is not idempotent is served, from its first request on."""
PAUSE_MS = 2000
CLOSED_S = 0.3
"""Seconds without a request after which the connection of a paused producer is closed: a request
that was on its way when the client got the response has arrived."""

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
        self._served: object = None
        """The request that `pause_ms` has last found to be served."""
        self._paused: dict[int, tuple[float, Session]] = {}
        """Of paused clients: the end of the time in which they are served."""
        self._quiet: dict[int, tuple[float, float]] = {}
        """Of paused clients: when they sent their last bytes, and since when that is known."""

    def __bool__(self) -> bool:
        return True

    def response(self, api: Api, request: Any) -> Awaitable[Message | None] | None:
        """Return the error of a request that moves its client, None for any other."""
        error = MOVED.get(api.name)
        is_served = not has_response(request) or request is self._served
        if error is None or (is_served and request is not None):
            return self._earlier.response(api, request) if self._earlier else None
        self.moved_at = monotonic()
        return _answer(api, request, error)

    def pause_ms(self, request: ProduceRequest, session: Session) -> int:
        """Return for how long the client of a request shall send nothing; 0: it is moved.

        Called before `response`.
        """
        if not has_response(request) or is_idempotent(request):
            return 0
        self.moved_at = monotonic()
        until, _ = self._paused.setdefault(id(session), (self.moved_at + SERVED_S, session))
        if self.moved_at >= until:
            return 0
        self._served = request
        return PAUSE_MS

    async def run(self, connections: OpenConnections, *, has_members: bool) -> None:
        """Wait until the clients have moved, at most HANDOVER_S."""
        began = monotonic()
        at_least = HEARTBEAT_S if has_members else QUIET_S
        while connections and monotonic() - began < HANDOVER_S:
            self.close_paused(connections)
            is_quiet = monotonic() - self.moved_at >= QUIET_S
            if is_quiet and monotonic() - began >= at_least:
                return
            await anyio.sleep(CHECK_S)

    def close_paused(self, connections: Iterable[ClientConnection]) -> None:
        """Close the connections of paused clients that were quiet for CLOSED_S."""
        now = monotonic()
        for connection in list(connections):
            key = connection.session_id
            if key not in self._paused:
                continue
            sent, since = self._quiet.get(key, (0.0, now))
            if not connection.is_quiet or sent != connection.last_active:
                self._quiet[key] = (connection.last_active, now)
            elif now - since >= CLOSED_S:
                connection.drain()


def is_idempotent(request: ProduceRequest) -> bool:
    """Return whether the producer repeats requests by itself: it has a transaction or an id."""
    if request.transactional_id is not None:
        return True
    for topic in request.topic_data:
        for partition in topic.partition_data:
            batch = partition.records
            if batch is not None:
                is_new = (
                    len(batch) >= records.HEADER_SIZE and batch[records.MAGIC_AT] == records.MAGIC
                )
                return is_new and records.read_header(batch).producer_id >= 0
    return False


async def _answer(api: Api, request: Any, error: ErrorCode) -> Message | None:
    top = ErrorCode.NONE if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    return refused(api, request, error, top=top)


def serves_members(metrics: Metrics) -> bool:
    """Return whether this broker has served members of groups."""
    return any(api in MEMBERS for api, _ in metrics.requests.values)


def has_others(registration: BrokerRegistration) -> bool:
    """Return whether clients of each listener of this broker find another one."""
    mine = {endpoint.listener for endpoint in registration.me.endpoints}
    others = [other for other in registration.brokers if other.id != registration.me.id]
    found = (endpoint.listener for other in others for endpoint in other.endpoints)
    return bool(mine) and mine <= set(found)


REFUSED = frozenset(
    {
        "Produce",
        "CreateTopics",
        "DeleteTopics",
        "DeleteRecords",
        "CreatePartitions",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "WriteTxnMarkers",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "AlterClientQuotas",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
        "UpdateFeatures",
    }
)
"""APIs that change more than groups and their offsets."""
SENTENCE = "This broker is read-only: it serves a remote store (korvet serve --from)."


class ReadOnly:
    """Answers the requests that would write."""

    def __bool__(self) -> bool:
        return True

    def response(self, api: Api, request: Any) -> Awaitable[Message | None] | None:
        """Return the refusal of a request that writes, None for any other."""
        return _refuse(api, request) if api.name in REFUSED else None


async def _refuse(api: Api, request: Any) -> Message | None:
    if not has_response(request):
        raise CloseWithoutResponse(SENTENCE)
    response: Message = _explained(refused(api, request, ErrorCode.POLICY_VIOLATION))
    return response


def _explained(item: Any) -> Any:
    """Return the response, or an item of it, with the reason next to its errors."""
    if isinstance(item, list):
        return [_explained(each) for each in item]
    if not isinstance(item, msgspec.Struct):
        return item
    fields = {name: _explained(getattr(item, name)) for name in item.__struct_fields__}
    if fields.get("error_code") and "error_message" in fields:
        fields["error_message"] = SENTENCE
    return msgspec.structs.replace(item, **fields)
