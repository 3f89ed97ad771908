"""`korvet bench`: measure rates and latency of a running broker, of any kind."""

import os
import re
from collections.abc import Mapping
from typing import Annotated

import typer

from korvet.cli import event_loop, table_output
from korvet.cli import options as o
from korvet.cli.table_output import progress
from korvet.config.setting import StartError
from korvet.testing.bench.frames import Refused
from korvet.testing.bench.latency import Latency
from korvet.testing.bench.load import Target
from korvet.testing.bench.throughput import DEFAULT, LATENCY, MEASURES, RATES

_ADDRESS = re.compile(r"(SSL://)?[^/\s]+:\d{1,5}")
_COLUMNS = (
    "row", "measures", "records/s", "MB/s", "p50_ms", "p99_ms", "client_cpu", "cpu_s_per_gb"
)  # fmt: skip


def bench(
    out: o.Output,
    address: Annotated[
        str,
        typer.Argument(
            metavar="[SSL://]HOST:PORT", help="The broker. SSL does not check the certificate."
        ),
    ] = "127.0.0.1:9092",
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="NAME", help="Only this row. Repeat. --list shows them."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the rows and end.")] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Longest time of a row.", min=0.1)
    ] = 5.0,
    megabytes: Annotated[
        int, typer.Option("--megabytes", help="Most bytes that a row produces, in MB.", min=1)
    ] = 400,
    config: o.TopicConfigs = None,
    pid: Annotated[
        list[int] | None,
        typer.Option("--pid", metavar="PID", help="The broker's process, for its CPU. Repeat."),
    ] = None,
) -> None:
    """Measure a running broker.

    Each row creates a topic named bench-*, and deletes it. client_cpu is the share of a core that
    this command used: near 1 it limits the row. cpu_s_per_gb needs --pid, and Linux.
    """
    if list_:
        out.listing(("row", "measures"), MEASURES.items())
        return
    if not _ADDRESS.fullmatch(address):
        raise typer.BadParameter(f"the broker's address must be HOST:PORT, not {address!r}")
    names = row or DEFAULT
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        raise typer.BadParameter(f"there is no row {unknown[0]!r}; there are {', '.join(MEASURES)}")
    configs = tuple(o.assignments("--config", config))
    target = Target(address, tuple(pid or ()), seconds, megabytes, configs)
    rows: list[table_output.Row] = []
    with progress(f"at {address}", len(names), shown=True) as advance:
        for name in names:
            found = event_loop.run(_measured, name, target, name == LATENCY)
            figures = ("records_per_s", "mb_per_s", "ack_p50_ms", "ack_p99_ms", "client_cpu_share")
            values = (found.get(figure) for figure in (*figures, "cpu_s_per_gb"))
            rows.append((name, MEASURES[name], *values))
            advance(1)
    out.listing(_COLUMNS, rows)


async def _measured(name: str, target: Target, is_latency: bool) -> Mapping[str, float]:
    """Run a row. Raises StartError if the broker cannot be reached or refuses a request."""
    try:
        if is_latency:
            tally, quantiles = await Latency().run(target)
            return {**quantiles, "client_cpu_share": tally.row()["client_cpu_share"]}
        return (await RATES[name].run(target)).row()
    except Refused as error:
        raise StartError(f"Row {name}: the broker refused a request: {error}.") from None
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number and number > 0 else str(error)
        raise StartError(
            f"Row {name}: {target.address} cannot be measured: {why}; "
            "give the HOST:PORT of a broker's PLAINTEXT listener, or SSL://HOST:PORT."
        ) from None
