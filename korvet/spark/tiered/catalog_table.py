"""Find a table of one of Spark's catalogs in a task, by name.

Rules
- Spark passes its settings, with the catalogs, to tasks only, not to the process that plans a
  query: names are resolved where the table is read.
- Query an Iceberg catalog through PyIceberg each time, with Spark's settings. A Hadoop catalog has
  no server: its tables are directories.
- Spark's own catalog, with Delta tables by name, is available to the driver only. A table created
  without a location is in Spark's warehouse directory under its name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from korvet.spark.errors import InvalidOption

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


class TableSource(msgspec.Struct, frozen=True):
    """The location of a table: a path, or a table loaded from a catalog."""

    format: str
    path: str = ""
    table: Any = None


def is_table_name(text: str, format: str | None) -> bool:
    """Return whether the text is a table name of a catalog instead of a path.

    A path has a slash or begins with a dot. A directory of the working directory may be named
    without one, unless a format is given that has table names.
    """
    if "/" in text or text.startswith(".") or format == "parquet":
        return False
    return format is not None or not Path(text).is_dir()


def find_table(
    name: str, format: str | None, settings: Mapping[str, str] | None = None
) -> TableSource:
    """Return the table of that name as its catalog has it now, or raise InvalidOption."""
    conf = _spark_settings() if settings is None else settings
    if not conf:
        raise InvalidOption(
            "archive",
            f"{name!r} is a table name, but this task has no settings of Spark's catalogs, as in "
            "an RDD made of a DataFrame. Set the table's path instead (a path has a '/').",
        )
    catalog, within = _split_name(name, conf)
    kind = conf.get(_CATALOG + catalog, "")
    if kind.startswith(_ICEBERG) and format != "delta":
        prefix = f"{_CATALOG}{catalog}."
        given = {n.removeprefix(prefix): v for n, v in conf.items() if n.startswith(prefix)}
        return _iceberg_table(name, catalog, within, given)
    if catalog == "spark_catalog" and format in (None, "delta"):
        return TableSource("delta", _managed_delta_path(name, within, conf))
    what = f"is {kind}" if kind else "has no tables of that format"
    raise InvalidOption(
        "archive",
        f"{name!r}: only tables of Iceberg catalogs and Delta tables of Spark's own catalog can "
        f"be read by name, but catalog {catalog!r} {what}. Set the table's path instead.",
    )


def _spark_settings() -> Mapping[str, str]:
    """Return the SQL settings that Spark passed to this task."""
    from pyspark import TaskContext

    settings = getattr(TaskContext.get(), "_localProperties", None) or {}
    return {name: value for name, value in settings.items() if name.startswith("spark.sql.")}


def _split_name(name: str, conf: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the catalog and the name within it."""
    parts = name.replace("`", "").split(".")
    if not all(parts):
        raise InvalidOption("archive", f"{name!r} is not a table name.")
    if len(parts) > 1 and (parts[0] == "spark_catalog" or _CATALOG + parts[0] in conf):
        return parts[0], parts[1:]
    if len(parts) > 2:
        raise InvalidOption(
            "archive", f"there is no catalog {parts[0]!r}: set {_CATALOG}{parts[0]}."
        )
    return conf.get("spark.sql.defaultCatalog", "spark_catalog"), parts


def _managed_delta_path(name: str, within: list[str], conf: Mapping[str, str]) -> str:
    """Return the path of a Delta table that was created without a location."""
    if conf.get("spark.sql.caseSensitive") != "true":
        within = [each.lower() for each in within]
    *databases, table = within
    root = Path(conf.get("spark.sql.warehouse.dir", "").removeprefix("file:"))
    path = root.joinpath(*(f"{each}.db" for each in databases if each != "default"), table)
    if not (path / "_delta_log").is_dir():
        raise InvalidOption(
            "archive",
            f"there is no Delta table {name!r} at {path}, in the warehouse of Spark's catalog. If "
            f"it is elsewhere, set the location that DESCRIBE DETAIL {name} prints instead.",
        )
    return str(path)


def _iceberg_table(
    name: str, catalog: str, within: list[str], given: Mapping[str, str]
) -> TableSource:
    implementation = given.get("catalog-impl", "").removeprefix(_ICEBERG)
    kind = (
        given.get("type", "hive").lower()
        if not implementation
        else _IMPLEMENTED.get(implementation, implementation)
    )
    if kind == "hadoop":
        return TableSource("iceberg", _hadoop_table_path(name, within, given.get("warehouse", "")))
    if kind not in _IMPLEMENTED.values():
        raise InvalidOption(
            "archive",
            f"{name!r}: Iceberg catalogs of kind {kind!r} cannot be read, only "
            f"{', '.join(_IMPLEMENTED.values())}. For a Hadoop table set its path.",
        )
    return TableSource(
        "iceberg", table=_load_iceberg(name, catalog, within, _pyiceberg_properties(kind, given))
    )


def _hadoop_table_path(name: str, within: list[str], warehouse: str) -> str:
    """Return the path of a table of a Hadoop catalog."""
    root = warehouse.removeprefix("file:")
    if not root.startswith("/"):
        raise InvalidOption(
            "archive",
            f"{name!r}: Hadoop catalogs can be read from file systems only, not {warehouse!r}.",
        )
    path = Path(root).joinpath(*within)
    if not (path / "metadata").is_dir():
        raise InvalidOption("archive", f"there is no Iceberg table {name!r} at {path}.")
    return str(path)


def _pyiceberg_properties(kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the catalog's settings under PyIceberg's names."""
    found = {n: v for n, v in given.items() if n not in ("type", "catalog-impl", "io-impl")}
    if kind != "jdbc":
        return {**found, "type": kind}
    scheme, _, address = given.get("uri", "").removeprefix("jdbc:").partition(":")
    user, password = given.get("jdbc.user", ""), given.get("jdbc.password", "")
    if scheme == "sqlite":
        address = f"///{address}"
    elif user:
        address = address.replace("//", f"//{quote(user, safe='')}:{quote(password, safe='')}@", 1)
    uri = f"{_DRIVERS.get(scheme, scheme)}:{address}"
    return {**found, "type": "sql", "uri": uri, "init_catalog_tables": "false"}


def _load_iceberg(name: str, catalog: str, within: list[str], properties: Mapping[str, str]) -> Any:
    from pyiceberg import exceptions
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(catalog, **properties).load_table(tuple(within))
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        raise InvalidOption("archive", f"there is no Iceberg table {name!r}: {error}.") from error
    except exceptions.NotInstalledError as error:
        raise InvalidOption("archive", f"{name!r}: {error}.") from error
