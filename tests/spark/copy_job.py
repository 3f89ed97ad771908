"""Run a streaming job from topics `s...` to topics `copy...`, for tests that kill it.

Arguments: Redis URL and checkpoint directory. Prints a line after each batch.
"""

import sys
import time

from tests.spark.spark_sessions import QUICK, SMALL, session


def main(url: str, checkpoint: str) -> None:
    """Run until killed."""
    with session(
        "local[2,4]",
        spark__sql__streaming__pollingDelay="5ms",
        spark__driver__extraJavaOptions=QUICK,
        **SMALL,
    ) as spark:
        query = (
            spark.readStream.format("korvet")
            .option("redis", url)
            .option("subscribePattern", "^s")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "400")
            .load()
            .selectExpr("key", "value", "concat('copy', substring(topic, 2)) topic")
            .writeStream.format("korvet")
            .option("redis", url)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        done = -1
        while query.isActive:
            last = query.lastProgress
            if last is not None and last.batchId != done:
                done = last.batchId
                sys.stdout.write(f"batch {done}\n")
                sys.stdout.flush()
            time.sleep(0.02)
        raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main(*sys.argv[1:])
