"""A load generator for any Kafka broker: prebuilt frames on plain sockets.

`korvet bench` runs its rows; the harness in `benchmarks/` of the repository has more cases.
"""
