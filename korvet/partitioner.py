"""Which partition a key belongs to, as Kafka's own producers choose it."""

_MASK = 0xFFFFFFFF
_MIX = 0x5BD1E995
_SEED = 0x9747B28C


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that the Java producer would send the key to (murmur2, sign bit off)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, unsigned."""
    length = len(data)
    whole = length & ~3
    mixed = _SEED ^ length
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        part = (part ^ part >> 24) * _MIX & _MASK
        mixed = (mixed * _MIX & _MASK) ^ part
    if whole < length:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 13) * _MIX & _MASK
    return mixed ^ mixed >> 15
