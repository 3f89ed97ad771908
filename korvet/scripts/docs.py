"""The page `docs/scripts.md`, written from the headers by `python -m korvet.scripts.docs`."""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from korvet.scripts import bundle
from korvet.scripts.contract import Contract, Row

_OPENING = """# Scripts

Every change of state is one of these scripts, and so is every read that has to see several things
at one moment. This page is written from the headers in `lua/` by `python -m korvet.scripts.docs`;
a test fails when it is stale. `korvet scripts show NAME` prints a script as Redis gets it, ready
for `redis-cli --eval`; `korvet scripts load` puts all of them into a Redis, and `korvet scripts
list` tells the SHA1s for EVALSHA. How keys are spelled is in [keys](keys.md). Where `orders` begins
and ends, say:

```sh
korvet scripts show log.list_offsets > list_offsets.lua
redis-cli --eval list_offsets.lua korvet:orders:0 '{korvet:orders:0}:log' , ''
```

- KEYS and ARGV are given in this order. A name with `...` may be given any number of times, and
  several such rows repeat together.
- Who gives another number of KEYS or ARGV, or for an `int` no whole number in digits, is told so by
  an error, and nothing was written. (`log.append` looks only at those that it uses.)
- A key of another type than KEYS says is an error, and nothing was written, unless the script does
  well without it. `log.append_many` tells in `reason` which partition's keys are wrong. The same
  holds   where Redis is full or takes no writes: it says so at a script's first write, never later.
- What can still leave a half: a user whom ACLs keep from one of a script's commands (give users all
  of them), and rows that somebody has changed into what no script writes ([keys](keys.md)).
- A reply is a list of the elements under RETURNS. `error` is Kafka's error code, 0 for none, or a
  signal to the caller above Kafka's range. 1001 TICK_FIRST: run `group.tick`, then call again. 1002
  REGISTER_FIRST: run `group.register`, then call again with `is_registered`. 1003 GROUP_CHANGED:
  describe the group, then call again.
- After an error under REFUSES nothing was written. One under SIGNALS comes with a finished write.
"""


def render(root: Path | None = None) -> str:
    """The page's text."""
    contracts = [bundle.load(name, root).contract for name in bundle.names(root)]
    lines = [_OPENING, *_table(contracts)]
    for family, members in groupby(contracts, lambda c: c.name.split(".")[0]):
        lines += ["", f"## {family}"]
        for contract in members:
            lines += _section(contract)
    return "\n".join(lines) + "\n"


def _table(contracts: Iterable[Contract]) -> Iterator[str]:
    yield "| Script | Version | | Afterwards |"
    yield "|---|---|---|---|"
    for c in contracts:
        anchor = c.name.replace(".", "")
        mode = "writes" if c.writes else "reads"
        yield f"| [`{c.name}`](#{anchor}) | {c.version} | {mode} | {_cell(c.sentence)} |"


def _section(contract: Contract) -> Iterator[str]:
    mode = "writes" if contract.writes else "reads"
    yield from ("", f"### {contract.name}", "", f"Version {contract.version}, {mode}.")
    yield f"{contract.sentence}"
    rows = (("KEYS", contract.keys), ("ARGV", contract.args), ("RETURNS", contract.returns))
    if any(given for _, given in rows):
        yield from ("", "| | Name | Type | Meaning |", "|---|---|---|---|")
    for title, given in rows:
        for number, row in enumerate(given):
            yield _row(title if number == 0 else "", row)
    for title, words in (("Refuses", contract.refuses), ("Signals", contract.signals)):
        if words:
            yield from ("", f"{title}: " + ", ".join(f"`{word}`" for word in words))
    yield from ("", f"Cost: {contract.cost}")
    if contract.notes:
        yield from ("", f"Notes: {contract.notes}")


def _row(title: str, row: Row) -> str:
    name = f"{row.name}..." if row.repeated else row.name
    return f"| {title} | `{name}` | {row.type} | {_cell(row.meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
