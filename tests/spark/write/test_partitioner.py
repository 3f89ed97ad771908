"""Check that keys go to the partition that Kafka's clients choose."""

import random

import numpy as np
import pytest
from aiokafka.partitioner import murmur2

from korvet.spark.write import row_router as partitioner


@pytest.mark.parametrize("step", [partitioner.STEP_BYTES, 100])
def test_every_key_goes_where_a_kafka_client_would_send_it(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioner, "STEP_BYTES", step)
    draw = random.Random(5)
    keys = [draw.randbytes(draw.randint(0, 40)) for _ in range(2000)]
    ends = np.cumsum([0, *map(len, keys)])
    data = np.frombuffer(b"".join(keys), dtype=np.uint8)
    for count in (1, 3, 12):
        chosen = partitioner.partition_keys(ends, data, count)
        assert chosen.tolist() == [(murmur2(key) & 0x7FFFFFFF) % count for key in keys]


def test_kafkas_own_examples_of_the_hash() -> None:
    examples = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    for key, wanted in examples.items():
        found = partitioner.murmur2(np.frombuffer(key, dtype=np.uint8)[None, :])
        assert int(found.view(np.int32)[0]) == wanted
