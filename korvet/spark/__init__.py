"""Spark data source `korvet`: `spark.read.format("korvet")`, `df.write.format("korvet")`.

Tasks talk to Redis directly, through the scripts and codecs of the broker: no broker is needed.
docs/spark/ is the guide; Spark registers `korvet.spark.data_source.KorvetDataSource`.
"""
