"""The scripts as files for clients in other languages: one Lua text each, one contract.json.

`contract.schema.json` describes contract.json as a JSON Schema.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from korvet.base.errors import ErrorCode
from korvet.scripts import bundle
from korvet.scripts.call import Signal
from korvet.scripts.contract import Row

FORMAT = 1


class Value(msgspec.Struct, frozen=True):
    """A key, an argument or an element of the reply."""

    name: str
    type: str
    """KEYS: hash, zset, stream, set, list or string. ARGV: int, bytes, text (UTF-8), or id (text
    with `%`, `{`, `}`, `:`, control and non-ASCII bytes percent-encoded). Reply: int, bytes, list
    (of bytes), ints, values (of both), or a script's name: a list of its replies."""
    meaning: str
    repeated: bool
    """Given any number of times; several repeated values repeat together, as one group."""


class Cost(msgspec.Struct, frozen=True):
    """The Redis commands one call makes: at most `calls`, and more for each counted unit."""

    text: str
    calls: int
    per: dict[str, int]


class ScriptContract(msgspec.Struct, frozen=True):
    """The arguments, reply and guarantees of a script."""

    name: str
    file: str
    version: int
    sha1: str
    """For EVALSHA; that of the file's bytes."""
    writes: bool
    description: str
    keys: tuple[Value, ...]
    args: tuple[Value, ...]
    returns: tuple[Value, ...]
    """The elements of the reply, in order. `error` is a value of `errors`, 0 for none."""
    refuses: tuple[str, ...]
    """Errors returned with nothing written."""
    signals: tuple[str, ...]
    """Errors returned together with a finished write."""
    cost: Cost
    notes: str


class ScriptContracts(msgspec.Struct, frozen=True):
    """The content of contract.json."""

    format: int
    """Of this file; raised when a field changes its meaning."""
    korvet: str
    scripts: dict[str, ScriptContract]
    errors: dict[str, int]
    """The number of each error that a script returns: Kafka's, and from 1001 on signals that ask
    the caller for another call first."""


def contract_of(name: str) -> ScriptContract:
    """Return one script's contract."""
    found = bundle.load(name)
    contract = found.contract
    return ScriptContract(
        name=name,
        file=f"{name}.lua",
        version=contract.version,
        sha1=found.sha1,
        writes=contract.writes,
        description=contract.sentence,
        keys=_values(contract.keys),
        args=_values(contract.args),
        returns=_values(contract.returns),
        refuses=contract.refuses,
        signals=contract.signals,
        cost=Cost(contract.cost, contract.budget.fixed, dict(contract.budget.per)),
        notes=contract.notes,
    )


def contracts(version: str) -> ScriptContracts:
    """Return all contracts, for a release of Korvet."""
    scripts = {name: contract_of(name) for name in bundle.names()}
    named = {code for each in scripts.values() for code in (*each.refuses, *each.signals)}
    codes = {code.name: int(code) for code in (*ErrorCode, *Signal)}
    errors = {name: code for name, code in codes.items() if name in named | {"NONE"}}
    return ScriptContracts(FORMAT, version, scripts, errors)


def export(folder: Path, version: str) -> int:
    """Write every script, contract.json and its schema; return the number of scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    found = contracts(version)
    for name, contract in found.scripts.items():
        # As bytes: the SHA-1 is that of "\n" line ends.
        (folder / contract.file).write_bytes(bundle.load(name).text.encode())
    _write(folder / "contract.json", found)
    _write(folder / "contract.schema.json", msgspec.json.schema(ScriptContracts))
    return len(found.scripts)


def _values(rows: Iterable[Row]) -> tuple[Value, ...]:
    return tuple(Value(row.name, row.type, row.meaning, row.repeated) for row in rows)


def _write(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
