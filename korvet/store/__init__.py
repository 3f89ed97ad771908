"""The only package that talks to Redis.

`aio` for the broker, `sync` for Spark workers and the command line, `wake` to wait for a change;
all three take the calls that `korvet.scripts` builds.
"""
