"""Frames that clients of Kafka 0.7 sent, and the responses that they accepted, as hex.

Captured between Jafka 1.2.3 or the npm package `kafka` 0.2.3 and a broker; topics begin empty.
"""

from typing import NamedTuple

GOLDEN = "0006676f6c64656e"
ONE_TWO = "0000000901007a6c86f16f6e6500000009010011ca8a6674776f"
PACKED = (
    "0000003701018df6d4fa1f8b08000000000000ff636060e06664703b7ae36b4946516a2a03"
    "03031723c3848369b569f9a54500c4368ecd1d000000"
)
FIVE = "0000000a01003cb2cccb66697665"
SIX = "000000090100431726fb736978"
LOG = ONE_TWO + PACKED + FIVE


class Exchange(NamedTuple):
    """A client's frame and the response to it, if there is one; both with their lengths."""

    name: str
    sent: str
    answer: str = ""


EXCHANGES = (
    Exchange("Jafka PRODUCE", f"0000002c0000{GOLDEN}000000000000001a{ONE_TWO}"),
    Exchange("Jafka PRODUCE, gzip", f"0000004d0000{GOLDEN}ffffffff0000003b{PACKED}"),
    Exchange(
        "Jafka MULTIPRODUCE",
        f"0000003e00030002{GOLDEN}000000000000000e{FIVE}00056f74686572000000000000000d{SIX}",
    ),
    Exchange(
        "Jafka FETCH",
        f"0000001a0001{GOLDEN}00000000000000000000000000001000",
        f"000000650000{LOG}",
    ),
    Exchange(
        "Jafka FETCH at the end",
        f"0000001a0001{GOLDEN}00000000000000000000006300001000",
        "000000020000",
    ),
    Exchange(
        "Jafka MULTIFETCH",
        f"0000003300020002{GOLDEN}000000000000000000000000000186a0"
        "00056f74686572000000000000000000000000000186a0",
        f"0000007e0000000000650000{LOG}0000000f0000{SIX}",
    ),
    Exchange(
        "Jafka OFFSETS",
        f"0000001a0004{GOLDEN}00000000ffffffffffffffff00000005",
        "0000001600000000000200000000000000630000000000000000",
    ),
    Exchange(
        "npm PRODUCE, magic 0",
        "00000027000000036e706d000000000000001800000008007a6c86f16f6e65000000080011ca8a6674776f",
    ),
    Exchange(
        "npm FETCH",
        "00000017000100036e706d00000000000000000000000000100000",
        "0000001a000000000008007a6c86f16f6e65000000080011ca8a6674776f",
    ),
    Exchange(
        "npm OFFSETS, its odd time",
        "00000017000400036e706d000000006b0100000000796600000001",
        "0000000e0000000000010000000000000018",
    ),
)
