"""The line of a bundle that checks KEYS and ARGV against the header: counts and integers.

It runs first, so a wrong call by hand fails with the reason and writes nothing. Repeated ARGV are
checked by the script itself, and so are log.append's.
"""

from collections.abc import Iterator, Sequence

from korvet.scripts.contract import Contract, Row

CHECKS_ITSELF = "log.append"
"""The script that checks its own arguments.

It runs once a batch, where a check of eight integers costs 1 us, and shares its check with
log.append_many, whose arguments repeat.
"""


def line(contract: Contract) -> str:
    """Return the Lua line that fails, naming the script, unless the call matches the header."""
    wrong = [*_wrong_count("KEYS", contract.keys), *_wrong_count("ARGV", contract.args)]
    if contract.takes_absent_key:
        is_repeated, count = contract.keys[0].repeated, len(contract.keys)
        wrong[0] = f"#KEYS % {count} > 1" if is_repeated else f"{wrong[0]} and #KEYS ~= {count + 1}"
    takes = f"{_taken('KEYS', contract.keys)} and {_taken('ARGV', contract.args)}"
    checks = [f'if {" or ".join(wrong)} then error("{contract.name} takes {takes}", 0) end']
    for first, last in () if contract.name == CHECKS_ITSELF else _runs_of_ints(contract.args):
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
    """Yield first and last position, from 1, of adjacent ints that are given once."""
    first = 0
    for at, row in enumerate((*rows, Row("", "bytes", "")), 1):
        if row.type == "int" and not row.repeated:
            first = first or at
        elif first:
            yield first, at - 1
            first = 0
