"""The line of a bundle that holds the caller to the header: so many KEYS and ARGV, and integers.

It comes before all else, so whoever calls a script wrongly by hand is told what is wrong, and has
written nothing. What repeated ARGV hold is the script's own to judge, and so are log.append's.
"""

from collections.abc import Iterator, Sequence

from korvet.scripts.contract import Contract, Row

JUDGES = "log.append"
"""It runs once a batch, where eight integers cost a microsecond, and shares what judges them with
log.append_many, whose are repeated."""


def line(contract: Contract) -> str:
    """Lua that fails, naming the script, unless it was called as its header says."""
    wrong = [*_wrong_count("KEYS", contract.keys), *_wrong_count("ARGV", contract.args)]
    takes = f"{_taken('KEYS', contract.keys)} and {_taken('ARGV', contract.args)}"
    checks = [f'if {" or ".join(wrong)} then error("{contract.name} takes {takes}", 0) end']
    for first, last in () if contract.name == JUDGES else _runs_of_ints(contract.args):
        names = ", ".join(f'"{row.name}"' for row in contract.args[first - 1 : last])
        checks.append(
            f'for i = {first}, {last} do if not string.find(ARGV[i], "^%-?%d+$") then '
            f'error("{contract.name}: ARGV[" .. i .. "], " .. ({{ {names} }})[i - {first - 1}] '
            '.. ", is no integer", 0) end end'
        )
    return " ".join(checks)


def _wrong_count(section: str, rows: Sequence[Row]) -> Iterator[str]:
    repeated = sum(row.repeated for row in rows)
    fixed = len(rows) - repeated
    if not repeated:
        yield f"#{section} ~= {fixed}"
        return
    if fixed:
        yield f"#{section} < {fixed}"
    if repeated > 1:
        yield f"(#{section} - {fixed}) % {repeated} ~= 0"


def _taken(section: str, rows: Sequence[Row]) -> str:
    repeated = sum(row.repeated for row in rows)
    fixed = len(rows) - repeated
    if repeated < 2:
        return f"{fixed} {section}{' or more' if repeated else ''}"
    return f"{fixed} {section} and as many times {repeated} more as there are"


def _runs_of_ints(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """First and last position, from 1, of ints that are given once and stand side by side."""
    first = 0
    for at, row in enumerate((*rows, Row("", "bytes", "")), 1):
        if row.type == "int" and not row.repeated:
            first = first or at
        elif first:
            yield first, at - 1
            first = 0
