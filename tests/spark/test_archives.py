"""PySpark's own archive on the path of Spark's Python processes, and when it is left out."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from korvet.scripts import bundle
from korvet.spark.archives import leave
from tests.spark.sessions import FOUND, PROJECT


def run(code: str, *path: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a Python process with this path did."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def installed(site: Path, *packages: str) -> None:
    for name in packages:
        package = site / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")


def spark_in(home: Path) -> list[str]:
    """What Spark puts before everything else."""
    archives = ["python/lib/pyspark.zip", "python/lib/py4j-0.10.9-src.zip", "jars/spark-core.jar"]
    for name in archives:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(home / name, "w") as archive:
            archive.writestr("pyspark/__init__.py", "")
    return [str(home / name) for name in archives]


def test_the_archive_of_the_installed_pyspark_is_left_out(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    installed(site, "pyspark", "py4j")
    path = ["", *spark_in(site / "pyspark"), "/mine", str(site)]
    leave(path)
    assert path == ["", "/mine", str(site)]


def test_the_same_is_seen_through_a_link(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "site-packages"
    installed(site, "pyspark", "py4j")
    (tmp_path / "lib64").symlink_to("lib")
    path = [*spark_in(tmp_path / "lib64" / "site-packages" / "pyspark"), str(site)]
    leave(path)
    assert path == [str(site)]


@pytest.mark.parametrize("there", [(), ("py4j",), ("pyspark",)])
def test_it_stays_where_pyspark_or_py4j_is_not_installed(
    tmp_path: Path, there: tuple[str, ...]
) -> None:
    site = tmp_path / "site-packages"
    installed(site, *there)
    path = [*spark_in(site / "pyspark"), str(site)]
    before = list(path)
    leave(path)
    assert path == before


def test_another_sparks_archive_stays(tmp_path: Path) -> None:
    site, cluster = tmp_path / "site-packages", tmp_path / "opt" / "spark"
    installed(site, "pyspark", "py4j")
    path = [*spark_in(cluster), str(site)]
    before = list(path)
    leave(path)
    assert path == before


def test_it_stays_where_another_pyspark_would_come_first(tmp_path: Path) -> None:
    site, mine = tmp_path / "site-packages", tmp_path / "mine"
    installed(site, "pyspark", "py4j")
    installed(mine, "pyspark")
    path = [*spark_in(site / "pyspark"), str(mine), str(site)]
    before = list(path)
    leave(path)
    assert path == before


def test_a_process_of_sparks_imports_pyspark_compiled_when_the_wheel_is_installed() -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    libraries = [home / "python" / "lib" / "pyspark.zip", *(home / "python" / "lib").glob("py4j*")]
    asks = f"import site; site.addsitedir({str(FOUND)!r}); import pyspark; print(pyspark.__file__)"
    ran = run(asks, *libraries, PROJECT)
    assert ran.stderr == ""
    assert Path(ran.stdout.strip()) == home / "__init__.py"


def test_the_wheel_works_as_an_archive_on_the_path(tmp_path: Path) -> None:
    """As `--py-files` brings it: the scripts are in it, too."""
    archive = tmp_path / "korvet.zip"
    with zipfile.ZipFile(archive, "w") as wheel:
        for folder, name in ((PROJECT / "korvet", "korvet"), (PROJECT / "lua", "korvet/_lua")):
            for path in folder.rglob("*.*"):
                if path.suffix in (".py", ".lua"):
                    wheel.write(path, f"{name}/{path.relative_to(folder).as_posix()}")
    asks = (
        "from korvet.spark import appending, reader, stream, writer; import korvet.scripts as s;"
        "from korvet.scripts import bundle; print(s.__file__);"
        "print(*(f'{n} {bundle.load(n).sha1}' for n in bundle.names()), sep='\\n')"
    )
    ran = run(asks, archive, cwd=tmp_path)
    where, *found = ran.stdout.splitlines()
    assert where.startswith(str(archive))
    assert found == [f"{name} {bundle.load(name).sha1}" for name in bundle.names()]
