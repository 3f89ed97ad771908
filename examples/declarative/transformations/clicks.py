"""Three tables: clicks as they arrive, valid clicks with their fields, and totals by user."""

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, timestamp_millis

spark: Any = SparkSession.active()


@dp.table
def clicks() -> DataFrame:
    """Read every record of topic `clicks`."""
    source = spark.readStream.format("korvet").option("subscribe", "clicks")
    return source.option("startingOffsets", "earliest").load()


@dp.table
def cleaned() -> DataFrame:
    """Return the records that are clicks, as columns."""
    parsed = spark.readStream.table("clicks").select(
        "partition",
        "offset",
        from_json(col("value").cast("string"), "user string, ms long").alias("click"),
    )
    return parsed.where("click.user is not null").select(
        "partition",
        "offset",
        col("click.user").alias("user"),
        timestamp_millis("click.ms").alias("at"),
    )


@dp.materialized_view
def by_user() -> DataFrame:
    """Count the clicks of each user."""
    return spark.read.table("cleaned").groupBy("user").agg(count("*").alias("clicks"))
