"""Check what Korvet concludes from a server's INFO."""

import pytest

from korvet.store.handshake import describe_server, parse_info, why_writes_are_refused


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("", ""),
        ("aof_last_write_status:ok\r\nmin_slaves_good_slaves:1", ""),
        ("aof_last_write_status:err\r\nmin_slaves_good_slaves:1", "is the disk full?"),
        ("aof_last_write_status:ok\r\nmin_slaves_good_slaves:0", "wants more replicas than are"),
    ],
)
def test_a_server_that_refuses_writes_says_why(info: str, reason: str) -> None:
    found = why_writes_are_refused(parse_info(info.encode()))
    assert reason in found and bool(reason) == bool(found)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("redis_version:7.0.15\r\ncluster_enabled:0", ("Redis", "7.0.15", False)),
        ("redis_version:7.2.4\r\nvalkey_version:8.1.0", ("Valkey", "8.1.0", False)),
        ("# Cluster\r\ncluster_enabled:1", ("Redis", "unknown", True)),
    ],
)
def test_a_server_is_described(info: str, expected: tuple[str, str, bool]) -> None:
    server = describe_server(parse_info(info.encode()))
    assert (server.name, server.version, server.cluster) == expected


@pytest.mark.parametrize(
    ("info", "history"),
    [
        ("run_id:a", "a"),
        (f"run_id:a\r\nmaster_replid:b\r\nmaster_replid2:{'0' * 40}", "a"),
        ("run_id:a\r\nmaster_replid:b\r\nmaster_replid2:c", "a:b"),
    ],
)
def test_a_promoted_replica_has_another_history(info: str, history: str) -> None:
    assert describe_server(parse_info(info.encode())).history == history
