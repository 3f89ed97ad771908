"""`korvet top`: brokers, Redis, topics and groups, printed again at an interval."""

from collections.abc import Iterable
from time import monotonic
from typing import Annotated, Any, NamedTuple

import typer

from korvet.base.human import size
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_requests import on_log
from korvet.cli.table_output import repeat
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import TopicInfo

MAX_PARTITIONS, MAX_GROUPS = 2_000, 200
"""Numbers of partitions and of groups that are read each time."""
_TOPICS = ("topic", "partitions", "records", "bytes", "records/s", "bytes/s")
_GROUPS = ("group", "state", "members", "lag", "slowest", "slowest_lag", "oldest_unread")


def top(
    target: o.Target,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Time between reads.", min=0.1)
    ] = 1.0,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", help="Topics and groups shown.", min=1)
    ] = 15,
    times: Annotated[
        int | None, typer.Option("--times", metavar="N", help="End after N reads.", min=1)
    ] = None,
    header: o.Header = True,
) -> None:
    """Watch rates of topics, lag of groups and the load of Redis.

    Topics with the most records per second come first, and groups with the most lag. Ctrl-C ends
    it.
    """

    async def run(log: AsyncKorvet) -> None:
        sampler = _Sampler(log, target, rows)
        await repeat(sampler.parts, interval, header=header, screen=True, times=times)

    on_log(run, target)


class _Seen(NamedTuple):
    """A partition at a read: the moment, where its log ended, and its bytes."""

    moment: float
    end: int
    bytes: int


class _Sampler:
    """Reads the log, and keeps what the next read compares with."""

    def __init__(self, log: AsyncKorvet, target: o.Target, rows: int) -> None:
        self._log = log
        self._target = target
        self._rows = rows
        self._seen: dict[tuple[str, int], _Seen] = {}

    async def parts(self) -> Iterable[table_output.Part]:
        """Return the lines and tables of one read."""
        topics, topics_left_out = await self._topics()
        groups, groups_left_out = await self._groups()
        found = [
            table_output.Part(await self._summary()),
            table_output.Part(""),
            table_output.Part(None, _TOPICS, topics[: self._rows]),
            table_output.Part(""),
            table_output.Part(None, _GROUPS, groups[: self._rows]),
        ]
        if topics_left_out or groups_left_out:
            words = f"not read: {topics_left_out} topics, {groups_left_out} groups"
            found.append(table_output.Part(words))
        return found

    async def _summary(self) -> str:
        servers = [info for _, info in (await self._log.store.info("default")).values()]

        def total(field: str) -> int:
            return sum(int(info.get(field, 0)) for info in servers)

        known = await self._log.store.command("HLEN", self._log.keys.brokers())
        brokers = max(0, int(known) - 1)
        limit = total("maxmemory")
        memory = size(total("used_memory")) + (f" of {size(limit)}" if limit else "")
        return (
            f"{brokers} broker{'s' * (brokers != 1)}, {len(servers)} Redis: {memory}, "
            f"{total('instantaneous_ops_per_sec')} commands/s, "
            f"{total('connected_clients')} connections"
        )

    async def _topics(self) -> tuple[list[table_output.Row], int]:
        """Return a row for each topic, by rate, and the number of those left out."""
        topics = await self._log.topics()
        left, rows = MAX_PARTITIONS, []
        for topic in topics:
            left -= topic.partitions
            if left < 0:
                break
            rows.append(await self._topic(topic))
        rows.sort(key=lambda row: (-row[4], -row[2], row[0]))
        shown: list[table_output.Row] = [
            (*row[:3], size(row[3]), _rate(row[4]), size(row[5])) for row in rows
        ]
        return shown, len(topics) - len(rows)

    async def _topic(self, topic: TopicInfo) -> tuple[str, int, int, int, float, float]:

        before, now = self._seen, monotonic()
        parts = await self._log.offsets(topic.name)
        keys = [(topic.name, part.partition) for part in parts]
        grown = [
            (part.partition, before[key].end)
            for key, part in zip(keys, parts, strict=True)
            if key in before and before[key].end != part.latest
        ]
        # Offsets may be times: the records since the last end are counted.
        replies = await self._log.store.run_many(
            [
                self._log.keys.partition(topic.name, number, topic.id).lag(offset=end)
                for number, end in grown
            ]
        )
        added = sum(reply.records for reply in replies)
        known = [key for key in keys if key in before]
        seconds = now - before[known[0]].moment if known else 0.0
        size = sum(part.bytes for part in parts)
        more = max(0, size - sum(before[key].bytes for key in known)) if known else 0
        for key, part in zip(keys, parts, strict=True):
            before[key] = _Seen(now, part.latest, part.bytes)
        per_second = (added / seconds, more / seconds) if seconds else (0.0, 0.0)
        return (topic.name, len(parts), sum(part.records for part in parts), size, *per_second)

    async def _groups(self) -> tuple[list[table_output.Row], int]:
        """Return a row for each group, by lag, and the number of those left out."""
        groups = await self._log.groups()
        rows: list[tuple[Any, ...]] = []
        for group in groups[:MAX_GROUPS]:
            offsets = await self._log.lags(group.group)
            slowest = max(offsets, key=lambda row: row.lag, default=None)
            row = (group.group, group.state, group.members, sum(each.lag for each in offsets))
            if slowest is None:
                rows.append((*row, None, None, None))
                continue
            age = max(each.age_ms for each in offsets)
            oldest = None if age < 0 else f"{age / 1000:g} s"
            rows.append((*row, f"{slowest.topic}-{slowest.partition}", slowest.lag, oldest))
        rows.sort(key=lambda row: (-row[3], row[0]))
        shown: list[table_output.Row] = list(rows)
        return shown, max(0, len(groups) - MAX_GROUPS)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
