"""A table of one of Spark's catalogs, found by a task.

Rules
- Spark tells each task of a query its settings, and with them the catalogs. The process that plans
  a query is told none, so names are looked up where the table is read.
- An Iceberg catalog is asked itself, each time, through PyIceberg, by the settings that Spark has.
  Only a Hadoop catalog is no server: its tables are directories.
- Spark's own catalog, where Delta tables by name are, answers the driver alone. But a table that
  was made without a location stands in Spark's warehouse, under its name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from korvet.spark.errors import BadOption

_CATALOG = "spark.sql.catalog."
_ICEBERG = "org.apache.iceberg."
_IMPLEMENTED = {
    "hadoop.HadoopCatalog": "hadoop",
    "rest.RESTCatalog": "rest",
    "jdbc.JdbcCatalog": "jdbc",
    "hive.HiveCatalog": "hive",
    "aws.glue.GlueCatalog": "glue",
}
_DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "sqlite": "sqlite"}


class Found(msgspec.Struct, frozen=True):
    """Where a table is: at a path, or given by a catalog."""

    format: str
    path: str = ""
    table: Any = None


def is_name(text: str, format: str | None) -> bool:
    """Whether it is a table of one of Spark's catalogs, and not a directory: a path has a '/' or
    begins with '.'; a directory here may be called without, unless a format with names is given.
    """
    if "/" in text or text.startswith(".") or format == "parquet":
        return False
    return format is not None or not Path(text).is_dir()


def find(name: str, format: str | None, settings: Mapping[str, str] | None = None) -> Found:
    """The table of that name as its catalog has it now, or BadOption."""
    told = _settings() if settings is None else settings
    if not told:
        raise BadOption(
            "archive",
            f"{name!r} is a table's name, and Spark told this task nothing of its catalogs, as "
            "when an RDD is made of a DataFrame. Give the table's path (a path has a '/').",
        )
    catalog, within = _parted(name, told)
    kind = told.get(_CATALOG + catalog, "")
    if kind.startswith(_ICEBERG) and format != "delta":
        prefix = f"{_CATALOG}{catalog}."
        given = {n.removeprefix(prefix): v for n, v in told.items() if n.startswith(prefix)}
        return _iceberg(name, catalog, within, given)
    if catalog == "spark_catalog" and format in (None, "delta"):
        return Found("delta", _managed(name, within, told))
    what = f"is {kind}" if kind else "has no tables of that format"
    raise BadOption(
        "archive",
        f"{name!r}: tasks find tables of Iceberg's catalogs, and Delta tables of Spark's own, but "
        f"catalog {catalog!r} {what}. Give the table's path.",
    )


def _settings() -> Mapping[str, str]:
    """Spark's settings, as it told this task."""
    from pyspark import TaskContext

    told = getattr(TaskContext.get(), "_localProperties", None) or {}
    return {name: value for name, value in told.items() if name.startswith("spark.sql.")}


def _parted(name: str, told: Mapping[str, str]) -> tuple[str, list[str]]:
    """The catalog, and the name within it."""
    parts = name.replace("`", "").split(".")
    if not all(parts):
        raise BadOption("archive", f"{name!r} is no table's name.")
    if len(parts) > 1 and (parts[0] == "spark_catalog" or _CATALOG + parts[0] in told):
        return parts[0], parts[1:]
    if len(parts) > 2:
        raise BadOption("archive", f"there is no catalog {parts[0]!r}: set {_CATALOG}{parts[0]}.")
    return told.get("spark.sql.defaultCatalog", "spark_catalog"), parts


def _managed(name: str, within: list[str], told: Mapping[str, str]) -> str:
    """Where Spark keeps a Delta table that was made without a location."""
    if told.get("spark.sql.caseSensitive") != "true":
        within = [each.lower() for each in within]
    *databases, table = within
    root = Path(told.get("spark.sql.warehouse.dir", "").removeprefix("file:"))
    path = root.joinpath(*(f"{each}.db" for each in databases if each != "default"), table)
    if not (path / "_delta_log").is_dir():
        raise BadOption(
            "archive",
            f"there is no Delta table {name!r} at {path}, where Spark's catalog keeps its own. "
            f"If it is elsewhere, give the location that DESCRIBE DETAIL {name} tells, for its "
            "name.",
        )
    return str(path)


def _iceberg(name: str, catalog: str, within: list[str], given: Mapping[str, str]) -> Found:
    made = given.get("catalog-impl", "").removeprefix(_ICEBERG)
    kind = given.get("type", "hive").lower() if not made else _IMPLEMENTED.get(made, made)
    if kind == "hadoop":
        return Found("iceberg", _directory(name, within, given.get("warehouse", "")))
    if kind not in _IMPLEMENTED.values():
        raise BadOption(
            "archive",
            f"{name!r}: tasks do not know Iceberg catalogs of kind {kind!r}; give the table's path "
            f"if it is a Hadoop table. Known are {', '.join(_IMPLEMENTED.values())}.",
        )
    return Found("iceberg", table=_load(name, catalog, within, _for_python(kind, given)))


def _directory(name: str, within: list[str], warehouse: str) -> str:
    """A table of a Hadoop catalog."""
    root = warehouse.removeprefix("file:")
    if not root.startswith("/"):
        raise BadOption(
            "archive",
            f"{name!r}: tasks read Hadoop catalogs on file systems, not at {warehouse!r}.",
        )
    path = Path(root).joinpath(*within)
    if not (path / "metadata").is_dir():
        raise BadOption("archive", f"there is no Iceberg table {name!r}: nothing is at {path}.")
    return str(path)


def _for_python(kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """The catalog's settings as PyIceberg calls them."""
    found = {n: v for n, v in given.items() if n not in ("type", "catalog-impl", "io-impl")}
    if kind != "jdbc":
        return {**found, "type": kind}
    scheme, _, rest = given.get("uri", "").removeprefix("jdbc:").partition(":")
    user, password = given.get("jdbc.user", ""), given.get("jdbc.password", "")
    if scheme == "sqlite":
        rest = f"///{rest}"
    elif user:
        rest = rest.replace("//", f"//{quote(user, safe='')}:{quote(password, safe='')}@", 1)
    uri = f"{_DRIVERS.get(scheme, scheme)}:{rest}"
    return {**found, "type": "sql", "uri": uri, "init_catalog_tables": "false"}


def _load(name: str, catalog: str, within: list[str], properties: Mapping[str, str]) -> Any:
    from pyiceberg import exceptions
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(catalog, **properties).load_table(tuple(within))
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        raise BadOption("archive", f"there is no Iceberg table {name!r}: {error}.") from error
    except exceptions.NotInstalledError as error:
        raise BadOption("archive", f"{name!r}: {error}.") from error
