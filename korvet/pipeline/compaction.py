"""Fewer, larger files in an archive of Parquet files.

Rules
- Runs of neighbouring small batches become one batch: the last one's number and state, the spans
  of all. Batches that are large already come along as hard links.
- The result is a whole new `data` directory; whoever exchanges it for the old one decides.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from korvet.pipeline.ranges import decode, encode

COMMIT = "_commit.json"


def merged(spark: Any, data: Path, staged: Path, target_bytes: int) -> int:
    """`staged` is a new `data`; how many files fewer it has. 0: there is nothing to do."""
    batches = sorted(each for each in data.iterdir() if each.name.startswith("batch="))
    runs = _runs(batches, target_bytes)
    before = sum(len(_files(batch)) for run in runs for batch in run)
    if all(len(run) == 1 for run in runs):
        return 0
    staged.mkdir(parents=True)
    for run in runs:
        if len(run) == 1:
            shutil.copytree(run[0], staged / run[0].name, copy_function=_link)
        else:
            _merge(spark, data, run, staged / run[-1].name, target_bytes)
    return before - len(_files(staged))


def _runs(batches: Sequence[Path], target_bytes: int) -> list[list[Path]]:
    """The batches in order; small neighbours stand together."""
    runs: list[list[Path]] = []
    last_small = False
    for batch in batches:
        files = _files(batch)
        small = not files or sum(f.stat().st_size for f in files) < len(files) * target_bytes // 2
        if small and last_small:
            runs[-1].append(batch)
        else:
            runs.append([batch])
        last_small = small
    return runs


def _merge(spark: Any, data: Path, run: Sequence[Path], into: Path, target_bytes: int) -> None:
    commits = [decode((batch / COMMIT).read_bytes()) for batch in run]
    files = [file for batch in run for file in _files(batch)]
    if files:
        size = sum(file.stat().st_size for file in files)
        rows = spark.read.option("basePath", str(data)).option("mergeSchema", "true")
        frame = rows.parquet(*(str(batch) for batch in run if _files(batch))).drop("batch")
        count = max(1, -(-size // target_bytes))
        frame.coalesce(count).write.partitionBy("date").parquet(str(into))
        (into / "_SUCCESS").unlink(missing_ok=True)
    else:
        into.mkdir()
    whole = msgspec.structs.replace(
        commits[-1],
        spans=tuple(span for commit in commits for span in commit.spans),
        rows=sum(commit.rows for commit in commits),
    )
    (into / COMMIT).write_text(encode(whole))


def _files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
