"""Check the max timestamp of fetched batches, in all kinds of buffers."""

import pytest

from korvet.fetch.record_format import max_timestamp_of
from korvet.wire import batch_builder

NOW = 1_700_000_000_123
BATCH = bytes(batch_builder.build([(0, NOW, None, b"v", [])]))


@pytest.mark.parametrize(
    "parts",
    [
        [BATCH],
        [BATCH[:16], memoryview(BATCH)[16:]],
        [BATCH, BATCH],
        [BATCH[:8], BATCH[8:20], bytearray(BATCH[20:])],
    ],
)
def test_the_timestamp_is_the_first_batchs(parts: list[bytes]) -> None:
    assert max_timestamp_of(parts) == NOW


@pytest.mark.parametrize("parts", [[], [b""], [BATCH[:42]], [b"\0" * 16 + b"\1" + b"\0" * 60]])
def test_what_is_no_batch_has_no_timestamp(parts: list[bytes]) -> None:
    assert max_timestamp_of(parts) == -1
