"""Check the manifest that is rebuilt from objects, and the report of a restore.

Several objects may have equal offsets.
"""

import pytest

from korvet.cli.restore import _print
from korvet.remote_log.recovery.chain import ObjectHeader, build_chain
from korvet.remote_log.recovery.report import Loss, Report
from korvet.wire.segments import SegmentHeader


def sound(first: int, last: int, created_ms: int = 0) -> ObjectHeader:
    name = f"{first}{last}{created_ms}"
    header = SegmentHeader(
        id=name,
        cluster_id="c",
        topic="t",
        topic_id="i",
        partition=0,
        first=first,
        last=last,
        records=last - first + 1,
        bytes=90,
        max_timestamp=5,
        storage_format="batch",
        offset_mode="dense",
        created_ms=created_ms,
    )
    return ObjectHeader(f"c/i/0/{first:020d}-{name}.segment", first, 100, header)


def corrupt(first: int) -> ObjectHeader:
    return ObjectHeader(f"c/i/0/{first:020d}-bad.segment", first, 100, None, "differs")


CASES = {
    "none": ([], 0, -1, [], []),
    "in order": ([sound(5, 9), sound(0, 4)], 0, 10, [(0, 4), (5, 9)], []),
    "an orphan that ends early": (
        [sound(0, 4, 9), sound(0, 6, 1), sound(7, 9)],
        0,
        10,
        [(0, 6), (7, 9)],
        [],
    ),
    "an orphan at the end": ([sound(0, 4), sound(5, 6), sound(5, 9)], 0, 5, [(0, 4), (5, 9)], []),
    "below the log start": ([sound(0, 4), sound(5, 9)], 7, 10, [(5, 9)], []),
    "expired since the snapshot": ([sound(5, 9)], 0, 10, [(5, 9)], []),
    "a missing one": ([sound(0, 4), sound(8, 9)], 0, 10, [(0, 4), (8, 9)], [(5, 7)]),
    "the last is missing": ([sound(0, 4)], 0, 10, [(0, 4)], [(5, 9)]),
    "a corrupt one": (
        [sound(0, 4), corrupt(5), sound(8, 9)],
        0,
        10,
        [(0, 4), (5, 7), (8, 9)],
        [(5, 7)],
    ),
    "the first is corrupt": ([corrupt(0), sound(5, 9)], 0, 10, [(0, 4), (5, 9)], [(0, 4)]),
    "a corrupt orphan": ([sound(0, 4), corrupt(0)], 0, 5, [(0, 4)], []),
    "all are corrupt": ([corrupt(0)], 0, 5, [(0, 4)], [(0, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_chain_reaches_as_far_as_sound_segments_do(name: str) -> None:
    objects, start, tiered, rows, holes = CASES[name]
    chain = build_chain(objects, start, tiered)
    assert [row[:2] for row in chain.rows] == rows
    assert chain.holes == holes


def test_the_report_names_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    loss = Loss("orders", 2, 100, 149, "not copied")
    counts = {"topics": 1, "partitions": 3, "segments": 4, "records": 100}
    _print(Report("c", 0, **counts, groups=1, users=2, acls=3, lost=[loss], unknown_topics=["ab"]))
    text = capsys.readouterr().out
    assert "1 topics, 3 partitions, 4 segments, 100 records, 1 groups, 2 users, 3 ACL rules" in text
    assert "not restored: topic id ab" in text
    assert text.splitlines()[-1].split() == ["orders", "2", "100", "149", "not", "copied"]
    _print(Report("c", 0, **counts, groups=1, users=2, acls=3, lost=[], unknown_topics=[]))
    assert capsys.readouterr().out.endswith("nothing\n")
