"""The rows of `korvet bench`, which measure any broker."""

from korvet.testing.bench.throughput import Fetch, Produce

RATES: dict[str, Produce | Fetch] = {
    "p1k": Produce(100, 1000),
    "p1k4": Produce(100, 1000, width=4),
    "p100": Produce(1000, 100),
    "p100lz4": Produce(1000, 100, codec="lz4"),
    "psmall": Produce(1, 100, width=4),
    "psmall32": Produce(1, 100, width=32),
    "pspread": Produce(1, 100, parts=8),
    "f1k": Fetch(100, 1000),
    "f100": Fetch(1000, 100),
    "c1k": Fetch(100, 1000, megabytes=1000, once=True),
    "c100": Fetch(1000, 100, megabytes=1000, once=True),
}
"""Rows that report a rate; those of class Fetch also report what they read."""
LATENCY = "lat"
MEASURES = {
    "p1k": "produce 100 records of 1 KB per request",
    "p1k4": "produce 100 records of 1 KB per request, 4 connections",
    "p100": "produce 1,000 records of 100 B per request",
    "p100lz4": "produce 1,000 records of 100 B per request, lz4",
    "psmall": "produce 1 record of 100 B per request, 4 connections",
    "psmall32": "produce 1 record of 100 B per request, 32 connections",
    "pspread": "produce 1 record of 100 B to each of 8 partitions per request",
    "f1k": "fetch 1 KB records of a log of 100 MB, repeatedly",
    "f100": "fetch 100 B records of a log of 100 MB, repeatedly",
    "c1k": "fetch 1 KB records of a log of up to 1 GB, once",
    "c100": "fetch 100 B records of a log of up to 1 GB, once",
    LATENCY: "500 produces of 1 record per second: time to the acknowledgement",
}
"""A row's name, and in words what it measures."""
DEFAULT = ("p1k", "p100", "psmall", "f1k", "f100", "c1k", LATENCY)
