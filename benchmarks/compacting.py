"""Measure compaction: the time it occupies Redis, per call and in total, for a log of few keys.

The log is written under `cleanup.policy=delete`. Then the policy changes to `compact`, and the
broker's cleaner compacts the log in its usual rounds, without other load.
"""

import asyncio
import random
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from korvet.testing.bench import frames
from korvet.testing.bench.connection import connect
from korvet.testing.bench.load import Pump, Target, connections, drain, own_bytes, topic
from korvet.testing.bench.payloads import values

INCREMENTAL_ALTER_CONFIGS = 44
TOPIC, SET = 2, 0
BATCH_RECORDS = 1000
SLOWER_THAN_US = 500
LOCK = Path(__file__).parent.parent / "lua" / "scripts.lock"


def alter(name: str, config: str, value: str) -> bytes:
    """Encode IncrementalAlterConfigs v0 of one topic."""
    body = struct.pack(">ib", 1, TOPIC) + frames.text(name) + struct.pack(">i", 1)
    body += frames.text(config) + struct.pack(">b", SET) + frames.text(value) + b"\0"
    return frames.frame(INCREMENTAL_ALTER_CONFIGS, 0, body)


def _batches(records: int, keys: int, size: int) -> list[bytes]:
    source, text = random.Random(7), values(BATCH_RECORDS, size)
    made = []
    for _ in range(records // BATCH_RECORDS):
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=BATCH_RECORDS * (size + 128),
        )
        now = time.time_ns() // 1_000_000
        for at in range(BATCH_RECORDS):
            key = b"key-%d" % source.randrange(keys)
            builder.append(at, timestamp=now, key=key, value=text[at], headers=[])
        made.append(bytes(builder.build()))
    return made


@dataclass(frozen=True, slots=True)
class Compact:
    """`records` of `size` bytes with `keys` distinct keys, in one partition."""

    redis: str
    records: int = 1_000_000
    keys: int = 10_000
    size: int = 100
    timeout_s: float = 400.0

    async def run(self, target: Target) -> dict[str, float | int | str]:
        """Measure from the change of the policy until the log is compacted."""
        store = redis.Redis.from_url(self.redis, decode_responses=True)
        async with topic(target, "bench-compact", 1) as name:
            log = f"{{korvet:{name}:0}}:log"
            await self._fill(target, name)
            before = _record_count(store, log)
            store.config_set("slowlog-log-slower-than", SLOWER_THAN_US)
            store.config_set("slowlog-max-len", 100_000)
            store.slowlog_reset()
            control = await connect(target.address)
            begin, cpu = time.perf_counter(), _busy(store)
            await control.ask(alter(name, "cleanup.policy", "compact"))
            first, samples, resident = await self._wait(store, log, target)
            seconds, spent = time.perf_counter() - begin, _busy(store) - cpu
            slowest = _slowest(store)
            row = {
                "records_before": before,
                "records_after": _record_count(store, log),
                "keys": self.keys,
                "seconds": round(seconds, 1),
                "compacting_s": round(time.perf_counter() - first, 1),
                "server_cpu_s": round(spent, 2),
                "server_share_of_worst_minute": round(_worst_minute(samples), 3),
                "server_share_while_compacting": round(_share(samples, first), 3),
                **slowest,
                "broker_resident_mb": round(resident / 1e6),
            }
            control.close()
        store.close()
        return row

    async def _fill(self, target: Target, name: str) -> None:
        left = iter([frames.produce(name, {0: one}) for one in self._requests()])
        reply_of = frames.ProduceReply(name)
        async with connections(target, 1) as opened:
            await drain([Pump(opened[0], lambda: next(left, None), _stored(reply_of))])

    def _requests(self) -> list[bytes]:
        return _batches(self.records, self.keys, self.size)

    async def _wait(
        self, store: Any, log: str, target: Target
    ) -> tuple[float, list[tuple[float, float]], int]:
        """Wait until the log is compacted.

        Return when the first pass began, samples of Redis's CPU time, and the broker's memory.
        """
        samples: list[tuple[float, float]] = []
        first, resident = 0.0, 0
        until = time.perf_counter() + self.timeout_s
        while time.perf_counter() < until:
            now = time.perf_counter()
            samples.append((now, _busy(store)))
            working, cleaned = store.hmget(log, "compacting", "cleaned")
            resident = max(resident, own_bytes(target.pids[0]) if target.pids else 0)
            if working and not first:
                first = now
            if cleaned and not working:
                return first or now, samples, resident
            await asyncio.sleep(0.25)
        raise frames.Refused(f"compaction of {log}: not done after {self.timeout_s} s")


def _stored(reply_of: frames.ProduceReply) -> Any:
    return lambda reply: reply_of.base_offset(reply) and None


def _record_count(store: Any, log: str) -> int:
    appended, removed = store.hmget(log, "records", "start_records")
    return int(appended or 0) - int(removed or 0)


def _busy(store: Any) -> float:
    """Return the CPU seconds of Redis's main thread."""
    info = store.info("cpu")
    return float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"])


def _worst_minute(samples: list[tuple[float, float]]) -> float:
    """Return the largest CPU share in 60 s of the samples."""
    worst = 0.0
    for at, (begin, busy) in enumerate(samples):
        spent = max(later for now, later in samples[at:] if now - begin <= 60) - busy
        worst = max(worst, spent / 60)
    return worst


def _share(samples: list[tuple[float, float]], first: float) -> float:
    window = [row for row in samples if row[0] >= first]
    (begin, busy), (end, later) = window[0], window[-1]
    return (later - busy) / max(end - begin, 0.001)


def _slowest(store: Any) -> dict[str, float | str]:
    """Return the slowest script and the slowest other command in SLOWLOG, ms."""
    names = {line.split()[2]: line.split()[0] for line in LOCK.read_text().splitlines()}
    found: dict[str, float | str] = {"slowest_script_ms": 0.0, "slowest_command_ms": 0.0}
    for row in store.slowlog_get(100_000):
        text = row["command"]
        words = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).split()
        kind, name = "command", words[0].lower()
        if name in ("evalsha", "eval"):
            kind, name = "script", names.get(words[1], words[1])
        ms = round(row["duration"] / 1000, 2)
        if name not in ("slowlog", "info", "config") and ms > float(found[f"slowest_{kind}_ms"]):
            found |= {f"slowest_{kind}_ms": ms, f"slowest_{kind}": name}
    return found
