"""Spark's Python processes import PySpark from where it is installed, not from its archive.

Spark puts `pyspark.zip` before everything else on the path of its Python processes. Nothing in an
archive is kept compiled, so each of the four or five processes of a first query would compile all
of PySpark again, 0.8 s of CPU a process, although the same files stand in the environment with
what Python compiled of them once. The wheel's `korvet_spark.pth` has each process of this
environment ask here as it starts; those without that archive on their path are not touched.

Rules
- Only the archive of the very installation that would be imported without it is left out: same
  files, same version. Any other PySpark, of a cluster for example, is what Spark chose, and stays.
- What else Spark brings from there, py4j and its own jar, goes with it, if py4j is installed too.
- This is imported as Python starts: the standard library's smallest part, and nothing of ours.
"""

import os

_ARCHIVE = os.path.join("python", "lib", "pyspark.zip")


def leave(path: list[str]) -> None:
    """The path has no archive of a PySpark that is found on it without one."""
    for home in [os.path.dirname(each[: -len(_ARCHIVE)]) for each in path if _is_archive(each)]:
        left = [each for each in path if not each.startswith(home + os.sep)]
        found = os.path.realpath(_first(left, "pyspark"))
        if found == os.path.realpath(home) and _first(left, "py4j"):
            path[:] = left


def _is_archive(entry: str) -> bool:
    return entry.endswith(os.sep + _ARCHIVE)


def _first(path: list[str], package: str) -> str:
    """Where the package would be imported from; empty where it would not."""
    for entry in path:
        found = os.path.join(entry, package)
        if os.path.isfile(os.path.join(found, "__init__.py")):
            return found
    return ""
