"""Check with real clients that no fault loses, repeats or moves records without a word.

The long form is `make faults`: every fault with every setting, 20 seeds each.
"""

from pathlib import Path

import pytest

from tests.faults.judge import run

pytestmark = pytest.mark.slow

SHORT = [
    ("brokers are upgraded, and downgraded", "none", "dense", "record"),
    ("brokers are upgraded, and downgraded", "none", "time", "batch"),
    ("connections to Redis break", "none", "dense", "record"),
    ("Redis is full for 1.5 s", "none", "time", "batch"),
    ("Redis and all brokers are killed", "always", "dense", "batch"),
    ("power fails", "everysec", "dense", "record"),
    ("power fails", "always", "time", "record"),
    ("Redis starts from a file of a second ago", "everysec", "dense", "batch"),
    ("a command in the file is broken", "everysec", "time", "record"),
    ("FLUSHALL", "none", "dense", "record"),
    ("the disk of Redis is full for 1.5 s", "everysec", "dense", "record"),
    ("Redis's clock is set forward, and back", "none", "time", "record"),
    ("Sentinel: its replica lags by 1 s", "memory", "dense", "record"),
    ("Sentinel: a stopped master resumes", "replicas:1", "time", "batch"),
    ("Cluster: a master is killed", "replicas:1", "dense", "batch"),
    ("Cluster: a master without a replica is missing for 3 s", "memory", "dense", "record"),
    ("Cluster: slots move", "memory", "time", "record"),
    ("embedded: syncs fail for 3 s", "fsync", "time", "batch"),
    ("embedded: power fails", "embedded", "dense", "record"),
]
"""Cells of the table in docs/concepts/durability.md that no other test has."""


@pytest.mark.parametrize(("fault", "setting", "mode", "form"), SHORT)
def test_a_fault_is_survived_or_noticed(
    tmp_path: Path, fault: str, setting: str, mode: str, form: str
) -> None:
    assert run(tmp_path, fault, setting, mode, form, seed=1).anomalies == []


def test_a_loss_of_records_that_leave_redis_is_noticed(tmp_path: Path) -> None:
    fault = "Redis starts from a file of a second ago"
    outcome = run(tmp_path, fault, "everysec", "dense", "record", seed=1, is_tiered=True)
    assert outcome.anomalies == []
