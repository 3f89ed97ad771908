"""Kafka's default partitioner for an Arrow column of keys, in numpy.

Hashes keys of equal length together, word by word, with the murmur2 of
org.apache.kafka.common.utils.Utils: rows go to the partition that Kafka's clients choose.
"""

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)

STEP_BYTES = 1 << 20
"""Max bytes of keys to hash at once; hashing needs eight times the memory."""

Hashes = npt.NDArray[np.uint32]


def partition_keys(
    ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], count: int
) -> npt.NDArray[np.int64]:
    """Return the partition of each key, out of `count`; key i is data[ends[i]:ends[i + 1]]."""
    starts, lengths = ends[:-1], np.diff(ends)
    chosen = np.empty(len(lengths), dtype=np.int64)
    for length in np.unique(lengths):
        equal = np.flatnonzero(lengths == length)
        most = max(1, STEP_BYTES // max(1, int(length)))
        for rows in np.split(equal, range(most, len(equal), most)):
            keys = data[starts[rows, None] + np.arange(length)]
            hashes = murmur2(np.ascontiguousarray(keys))
            chosen[rows] = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return chosen


def murmur2(keys: npt.NDArray[np.uint8]) -> Hashes:
    """Return the hash of each row; all keys have the same length."""
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
