"""`korvet transactions`: list, describe and abort, and find those that no transactional id has."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from korvet.base.errors import ErrorCode
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import TRANSACTION, Requests, Via, ask_coordinator, leaders
from korvet.config.setting import StartError
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.messages.describe_transactions import DescribeTransactionsRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.list_transactions import ListTransactionsRequest
from korvet.wire.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from korvet.wire.structs import PartitionIndexes

app = o.group()

_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]
_COLUMNS = ("transactional_id", "state", "producer_id")
_HANGING = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_append")


@o.command(app, "list")
def list_(via: Via, out: o.Output) -> None:
    """List transactional ids with the state of their last transaction."""

    async def run(requests: Requests) -> list[table_output.Row]:
        found = sorted(await _list(requests), key=lambda row: str(row.transactional_id))
        return [(row.transactional_id, row.transaction_state, row.producer_id) for row in found]

    out.listing(_COLUMNS, via.run(run))


@o.command(app, "describe")
def describe(name: _Id, via: Via, out: o.Output) -> None:
    """Print the state and the partitions of a transactional id."""

    async def run(requests: Requests) -> Any:
        return await _describe(requests, name)

    found = via.run(run)
    columns = ("state", "producer_id", "producer_epoch", "timeout_ms", "began", "partitions")
    places = [f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions]
    row = (
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        _time(found.transaction_start_time_ms) if found.transaction_state in _OPEN else None,
        ",".join(sorted(places)) or None,
    )
    out.listing(columns, [row])


@o.command(app, "abort")
def abort(name: _Id, via: Via) -> None:
    """Abort the open transaction of a transactional id, and fence its producer.

    The producer gets an error at its next request. A transaction whose commit was decided is
    committed.
    """

    async def run(requests: Requests) -> str:
        before = await _describe(requests, name)
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=before.transaction_timeout_ms
        )
        answer = await ask_coordinator(requests, TRANSACTION, name, request)
        check(answer)
        return str(before.transaction_state)

    state = via.run(run)
    done = {"Ongoing": "aborted", "PrepareCommit": "committed"}.get(
        state, "had no open transaction"
    )
    table_output.line(f"{name}: {done}; its producer is fenced")


@o.command(app, "hanging")
def hanging(
    topic: o.TopicName,
    via: Via,
    out: o.Output,
    abort: Annotated[
        bool, typer.Option("--abort", help="End them. Without it they are only listed.")
    ] = False,
) -> None:
    """List a topic's open transactions that no transactional id has, so that none will end them.

    Consumers with read_committed wait at such a transaction. A failover of Redis can leave one.
    """

    async def run(requests: Requests) -> list[table_output.Row]:
        owned = {row.producer_id for row in await _list(requests, *_OPEN)}
        rows: list[table_output.Row] = []
        for number, leader in sorted((await leaders(requests, topic)).items()):
            one = [PartitionIndexes(name=topic, partition_indexes=[number])]
            answer = await requests.call(DescribeProducersRequest(topics=one), leader)
            (found,) = answer.topics[0].partitions
            check(found)
            for each in found.active_producers:
                if each.current_txn_start_offset < 0 or each.producer_id in owned:
                    continue
                if abort:
                    marker = WritableTxnMarker(
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        transaction_result=False,
                        topics=one,
                        coordinator_epoch=max(0, each.coordinator_epoch),
                    )
                    ended = await requests.call(WriteTxnMarkersRequest(markers=[marker]), leader)
                    check(ended.markers[0].topics[0].partitions[0])
                rows.append(
                    (
                        topic,
                        number,
                        each.producer_id,
                        each.producer_epoch,
                        each.current_txn_start_offset,
                        _time(each.last_timestamp),
                    )
                )
        return rows

    rows = via.run(run)
    out.listing(_HANGING, rows)
    if rows:
        table_output.note("aborted" if abort else "nothing is aborted: give --abort to end these")


async def _list(requests: Requests, *states: str) -> list[Any]:
    """Return the transactional ids of every broker."""
    rows: dict[str, Any] = {}
    for broker in requests.brokers:
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=[])
        answer = await requests.call(request, broker)
        check(answer)
        rows |= {row.transactional_id: row for row in answer.transaction_states}
    return list(rows.values())


async def _describe(requests: Requests, name: str) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    answer = await ask_coordinator(
        requests, TRANSACTION, name, request, lambda answer: answer.transaction_states[0].error_code
    )
    (found,) = answer.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise StartError(
            f"There is no transactional id {name!r}: `korvet transactions list` names them."
        )
    check(found)
    return found


def _time(ms: int) -> str | None:
    return None if ms < 0 else datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds")
