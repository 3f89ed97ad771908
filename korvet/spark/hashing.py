"""Kafka's default partitioner over a whole Arrow column: murmur2 of each key, in numpy.

Keys of one length are hashed together, word by word. The result is that of
org.apache.kafka.common.utils.Utils.murmur2, and so the partition that Kafka's clients choose.
"""

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)

STEP_BYTES = 1 << 20
"""So many bytes of keys are hashed together; while they are, each takes eight times its own."""

Hashes = npt.NDArray[np.uint32]


def partitions_of(
    ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], count: int
) -> npt.NDArray[np.int64]:
    """The partition, of `count`, of each key; key i is data[ends[i]:ends[i + 1]]."""
    starts, lengths = ends[:-1], np.diff(ends)
    chosen = np.empty(len(lengths), dtype=np.int64)
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        most = max(1, STEP_BYTES // max(1, int(length)))
        for rows in np.split(alike, range(most, len(alike), most)):
            keys = data[starts[rows, None] + np.arange(length)]
            hashes = murmur2(np.ascontiguousarray(keys))
            chosen[rows] = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return chosen


def murmur2(keys: npt.NDArray[np.uint8]) -> Hashes:
    """The hash of each row; all rows are keys of the same length."""
    count, length = keys.shape
    whole = length // 4
    words = keys[:, : whole * 4].copy().view("<u4") if whole else np.empty((count, 0), "<u4")
    hashes: Hashes = np.full(count, _SEED ^ np.uint32(length), dtype=np.uint32)
    for n in range(whole):
        mixed = words[:, n] * _M
        mixed ^= mixed >> _R
        mixed *= _M
        hashes = hashes * _M ^ mixed
    rest = keys[:, whole * 4 :]
    for n in reversed(range(rest.shape[1])):
        hashes ^= rest[:, n].astype(np.uint32) << np.uint32(8 * n)
    if rest.shape[1]:
        hashes *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes
