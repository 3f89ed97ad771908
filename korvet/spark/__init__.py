"""Spark reads and writes the log: `spark.read.format("korvet")`, `df.write.format("korvet")`.

Tasks talk to Redis directly, through the scripts and codecs that the broker uses; no broker need
run. docs/spark.md is the guide; `korvet.spark.source.KorvetDataSource` is what Spark registers.
"""
