"""Count clicks per minute and user, from topic `clicks` to topic `clicks-per-minute`.

KORVET_REDIS_URL=redis://localhost:6379 python examples/windows.py CHECKPOINT [--once]

The totals of a minute are written when the watermark has passed it: ten seconds after its end.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, struct, timestamp_millis, to_json, window


def totals(clicks: DataFrame) -> DataFrame:
    """Return key and value of one record per user and minute."""
    fields = from_json(col("value").cast("string"), "user string, ms long")
    parsed = clicks.select(fields.alias("c"))
    timed = parsed.select("c.user", timestamp_millis("c.ms").alias("at")).where("user is not null")
    counted = (
        timed.withWatermark("at", "10 seconds")
        .groupBy(window("at", "1 minute"), "user")
        .agg(count("*").alias("clicks"))
    )
    value = to_json(struct("user", col("window.start").alias("minute"), "clicks"))
    return counted.select(col("user").alias("key"), value.alias("value"))


def main(checkpoint: str, once: bool) -> None:
    """Run until stopped, or with `once` until all records so far are read."""
    # The checkpoint fixes the number of state partitions: few, for a small job.
    builder = SparkSession.builder.appName("windows").config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    clicks = (
        spark.readStream.format("korvet")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        totals(clicks)
        .writeStream.format("korvet")
        .option("topic", "clicks-per-minute")
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
    )
    if once:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], "--once" in sys.argv)
