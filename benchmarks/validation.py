"""Measure the check of a produced batch's records: microseconds per batch, one JSON line each.

python -m benchmarks.validation
"""

import json
from collections.abc import Callable
from time import perf_counter_ns

from korvet.testing.bench.payloads import CODECS, batch
from korvet.wire import record_walk, records

SHAPES = ((1, 100), (1000, 100), (100, 1000), (1000, 1000))
"""Records per batch, and bytes of a record."""
ROUNDS = 300
LIMIT = 1 << 26


def best_us(action: Callable[[], object]) -> float:
    """Return the shortest of ROUNDS runs, in microseconds."""
    best = perf_counter_ns()
    for _ in range(ROUNDS):
        began = perf_counter_ns()
        action()
        best = min(best, perf_counter_ns() - began)
    return best / 1000


def measure(data: bytes) -> dict[str, float]:
    """Return the times of the header with its CRC, of opening the records, and of both and all."""
    header = records.check_produced(data)
    section = bytes(records.open_section(data, header, LIMIT))

    def everything() -> None:
        opened = records.open_section(data, records.check_produced(data), LIMIT)
        record_walk.check_records(opened, header.records)

    return {
        "header_us": best_us(lambda: records.check_produced(data)),
        "open_us": best_us(lambda: records.open_section(data, header, LIMIT)),
        "walk_us": best_us(lambda: record_walk.check_records(section, header.records)),
        "all_us": best_us(everything),
    }


def main() -> None:
    """Print one line per shape and codec."""
    for count, size in SHAPES:
        for codec in CODECS:
            found = measure(batch(count, size, codec))
            times = {name: round(value, 1) for name, value in found.items()}
            print(json.dumps({"records": count, "bytes": size, "codec": codec, **times}))


if __name__ == "__main__":
    main()
