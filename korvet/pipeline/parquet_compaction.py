"""Compact an archive of Parquet files into fewer, larger files.

Rules
- Neighbouring small batches become one batch with the number and state of the last one and the
  spans of all. Large batches are hard-linked.
- The result is a complete new `data` directory; the caller swaps it for the old one.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from korvet.pipeline.commit_metadata import decode, encode

COMMIT = "_commit.json"


def compact_directory(spark: Any, data: Path, staged: Path, target_bytes: int) -> int:
    """Build a compacted copy of `data` in `staged`; return how many files fewer, 0 if unchanged."""
    batches = sorted(each for each in data.iterdir() if each.name.startswith("batch="))
    runs = _group_batches(batches, target_bytes)
    before = sum(len(_files(batch)) for run in runs for batch in run)
    if all(len(run) == 1 for run in runs):
        return 0
    staged.mkdir(parents=True)
    for run in runs:
        if len(run) == 1:
            shutil.copytree(run[0], staged / run[0].name, copy_function=_link)
        else:
            _merge_group(spark, data, run, staged / run[-1].name, target_bytes)
    return before - len(_files(staged))


def _group_batches(batches: Sequence[Path], target_bytes: int) -> list[list[Path]]:
    """Group neighbouring small batches, in order."""
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


def _merge_group(
    spark: Any, data: Path, run: Sequence[Path], into: Path, target_bytes: int
) -> None:
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
