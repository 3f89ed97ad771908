"""An archive that is a Delta table.

Rules
- Our state is the `userMetadata` of our newest commit: Delta writes it in the same step as the
  rows. OPTIMIZE, VACUUM and the like by others may stand above it in the history.
- Commits carry Delta's own transaction id (`txnAppId`, `txnVersion` = our number). Of two
  archivers with one number, Delta lets one win and refuses or leaves out the other; which of the
  two it was is read back.
"""

from pathlib import Path
from typing import Any, Self

import msgspec

from korvet.pipeline.errors import ForeignTable, Overtaken, PipelineError
from korvet.pipeline.places import Place
from korvet.pipeline.ranges import NOTHING, UNKNOWN, Commit, decode, encode
from korvet.pipeline.rows import DDL
from korvet.pipeline.table import Counted, Making, missing

PROPERTY = "korvet.archive"
_APP = "korvet-archive"
_RECENT = 20


class DeltaTable:
    """See the module."""

    def __init__(self, spark: Any, place: Place) -> None:
        self._spark = spark
        self._place = place

    @classmethod
    def open(cls, spark: Any, place: Place, making: Making | None) -> Self:
        """The table at the place; made there if nothing is, and `making` says so."""
        table = cls(spark, place)
        properties = table._properties()
        if properties is None:
            if making is None:
                raise missing(place)
            if place.is_path and _occupied(place.path):
                raise ForeignTable(f"{place} is not empty and no Delta table: nothing was written.")
            table._make()
        elif PROPERTY not in properties:
            raise ForeignTable(f"{place} is a Delta table that no archive of Korvet has made.")
        return table

    def _properties(self) -> dict[str, str] | None:
        from pyspark.errors import AnalysisException

        try:
            detail = self._spark.sql(f"DESCRIBE DETAIL {self._place.sql}").first()
        except AnalysisException:
            return None
        if detail["format"] != "delta":
            raise ForeignTable(f"{self._place} is no Delta table.")
        return dict(detail["properties"])

    def _make(self) -> None:
        try:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._place.sql} ({DDL}, date DATE) USING delta "
                f"PARTITIONED BY (date) TBLPROPERTIES ('{PROPERTY}' = '1')"
            )
        except Exception as error:
            raise PipelineError(
                f"{self._place} cannot be made: {str(error).splitlines()[0]}"
            ) from error

    def state(self) -> Commit:
        found = self._newest(_RECENT) or self._newest(None)
        return NOTHING if found is None else found

    def _newest(self, most: int | None) -> Commit | None:
        found = self._commits(most)
        return found[0] if found else None

    def _commits(self, most: int | None) -> list[Commit]:
        """Our commits, newest first."""
        limit = "" if most is None else f" LIMIT {most}"
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._place.sql}{limit}")
        found = []
        for text, metrics in rows.select("userMetadata", "operationMetrics").collect():
            try:
                commit = decode(text or "")
            except msgspec.DecodeError:
                continue
            rows_added = int((metrics or {}).get("numOutputRows", 0))
            found.append(
                msgspec.structs.replace(
                    commit, rows=rows_added, total_rows=commit.total_rows + rows_added
                )
            )
        return found

    def append(self, frame: Any, before: Commit, planned: Commit, counted: Counted) -> Commit:
        # Rows are counted by Delta; the commit is written before their sum of hashes is known.
        told = msgspec.structs.replace(planned, checksum=UNKNOWN)
        writer = (
            frame.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("userMetadata", encode(told))
            .option("txnAppId", _APP)
            .option("txnVersion", planned.number)
        )
        try:
            if self._place.is_path:
                writer.save(self._place.path)
            else:
                writer.saveAsTable(self._place.name)
        except Exception as error:
            if "oncurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
                raise self._overtaken() from error
            raise
        for commit in self._commits(_RECENT):
            if commit.id == planned.id:
                return commit
        raise self._overtaken()

    def _overtaken(self) -> Overtaken:
        return Overtaken(f"Somebody else archives into {self._place}.")

    def frame(self) -> Any:
        if self._place.is_path:
            return self._spark.read.format("delta").load(self._place.path)
        return self._spark.read.table(self._place.name)

    def compact(self, target_bytes: int) -> int:
        name = "spark.databricks.delta.optimize.maxFileSize"
        self._spark.conf.set(name, str(target_bytes))
        metrics = self._spark.sql(f"OPTIMIZE {self._place.sql}").first()["metrics"]
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])


def _occupied(path: str) -> bool:
    here = Path(path)
    return here.exists() and (not here.is_dir() or any(here.iterdir()))
