"""`korvet brokers`: list the brokers that are registered in Redis, and change their settings."""

from typing import Annotated

import msgspec
import typer

from korvet.admin.config_edits import ConfigResourceType
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.config_changes import All, Configs, Deleted, Resource
from korvet.cli.kafka_requests import Via
from korvet.cli.redis_target import store
from korvet.cluster.registration import TTL_MS, LiveBroker
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore

app = o.group()

_Broker = Annotated[
    int | None, typer.Option("--broker", metavar="N", help="Only this broker.", min=0)
]

_CONTROLLER = b":controller"
_COLUMNS = ("id", "controller", "listeners", "rack", "renewed_s")


@o.command(app, "list")
def list_(target: o.Target, out: o.Output) -> None:
    """List the live brokers with their addresses.

    A broker renews its registration every 3 s, and is gone 10 s after the last time.
    """
    with store(target) as reached:
        rows = live(reached, target.namespace)
    out.listing(_COLUMNS, rows)


def live(store: SyncStore, namespace: str) -> list[table_output.Row]:
    """Return a row for each broker whose registration has not ended."""
    flat = store.command("HGETALL", Keys(namespace).brokers())
    seconds, micros = map(int, store.command("TIME"))
    now_ms = seconds * 1000 + micros // 1000
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    controller = int(fields.pop(_CONTROLLER, b"-1"))
    rows: list[table_output.Row] = []
    for raw in fields.values():
        ends, _, address = raw.partition(b" ")
        if not address or int(ends) < now_ms:
            continue
        broker = msgspec.json.decode(address, type=LiveBroker)
        age = max(0, now_ms - (int(ends) - TTL_MS)) / 1000
        rows.append(
            (broker.id, broker.id == controller, broker.addresses, broker.rack, round(age, 1))
        )
    return sorted(rows, key=lambda row: int(str(row[0])))


@o.command(app, "configs")
def configs(via: Via, out: o.Output, broker: _Broker = None, all_: All = False) -> None:
    """List the settings that were changed for all brokers, or for one."""
    _brokers(broker).list(via, all_, out)


@o.command(app, "alter")
def alter(via: Via, config: Configs = None, delete: Deleted = None, broker: _Broker = None) -> None:
    """Change settings of all brokers, or of one, while they run.

    All changes are applied, or none, within a second. `korvet settings --of broker` says which
    settings change while brokers run.
    """
    _brokers(broker).alter(via, config, delete)


def _brokers(number: int | None) -> Resource:
    return Resource(ConfigResourceType.BROKER, "" if number is None else str(number), number)
