"""Header counts of records, read before any object is made of them.

A header of two bytes becomes a hundred in memory, and a compressed batch may have millions.
"""

from collections.abc import Iterator


def claimed_headers(plain: memoryview, at: int, longest: int) -> Iterator[int]:
    """Return the header count of each record from `at` on that is longer than `longest` bytes.

    Stops at bytes that are no record.
    """
    end = len(plain)
    try:
        while at < end:
            low = plain[at]
            if low & 1:
                return  # below 0
            # Nearly all are shorter than 8 KB: decoded without a call.
            if low < 0x80:
                length, at = low >> 1, at + 1
            elif (high := plain[at + 1]) < 0x80:
                length, at = (low & 0x7F | high << 7) >> 1, at + 2
            else:
                length, at = read_varint(plain, at)
            if length > longest:
                _, position = read_varint(
                    plain, at + 1
                )  # after the attributes: the timestamp delta
                _, position = read_varint(plain, position)  # the offset delta
                for _ in ("key", "value"):
                    size, position = read_varint(plain, position)
                    position += max(size, 0)
                yield read_varint(plain, position)[0]
            at += length
    except IndexError:
        return


def read_varint(data: bytes | memoryview, at: int, width: int = 10) -> tuple[int, int]:
    """Return the zigzag varint of at most `width` bytes, and the next position.

    Raises IndexError if it does not end.
    """
    number = 0
    for n in range(width):
        byte = data[at + n]
        number |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + n + 1
    raise IndexError
