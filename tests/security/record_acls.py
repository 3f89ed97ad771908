"""Record a secured broker's answers as kafka_acl_matrix.json and kafka_acl_tables.json.

    python -m tests.security.record_acls HOST:PORT [FOLDER]

The broker is empty, has a SASL_PLAINTEXT listener with PLAIN, the super user admin (password
admin-secret), the user alice (alice-secret) and node id 1.
The recorder connects from 127.0.0.1.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.security.acl_probes import PROBES
from tests.security.acl_rules import rule_sets
from tests.security.acl_scene import Scene
from tests.security.acl_tables import tables
from tests.support.sasl_client import SaslClient

FOLDER = Path(__file__).parent
MATRIX, TABLES = "kafka_acl_matrix.json", "kafka_acl_tables.json"


def record(scene: Scene) -> dict[str, list[Any]]:
    """Return for each probe its distinct outlines, each with the sets of rules that give it."""
    found: dict[str, list[Any]] = {}
    for probe in PROBES.values():
        outcomes: dict[bytes, list[str]] = {}
        for rules in rule_sets(probe.needs, probe.resources):
            outline = msgspec.json.encode(scene.run(probe, rules))
            outcomes.setdefault(outline, []).append(" ".join(rules))
        found[probe.name] = [[msgspec.Raw(one), sets] for one, sets in outcomes.items()]
    return found


def lines(name: str, rows: Iterable[Any]) -> str:
    """Return an entry of the file, one line for each row."""
    body = ",\n".join(f"  {msgspec.json.encode(row).decode()}" for row in rows)
    return f' "{name}": [\n{body}\n ]'


def write(path: Path, found: dict[str, list[Any]]) -> None:
    """Write the tables in a form whose differences can be read."""
    path.write_text("{\n" + ",\n".join(lines(*entry) for entry in found.items()) + "\n}\n")


def main(address: str, folder: Path) -> None:
    """Record both files."""
    scene = Scene(
        SaslClient(address, "admin", "admin-secret"), SaslClient(address, "alice", "alice-secret")
    )
    scene.prepare()
    write(folder / MATRIX, record(scene))
    write(folder / TABLES, tables(scene))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER)
