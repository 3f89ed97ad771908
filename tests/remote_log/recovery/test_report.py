"""Check the report of `korvet restore` as text."""

import pytest

from korvet.cli.restore import _print
from korvet.remote_log.recovery.report import Loss, Report


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
