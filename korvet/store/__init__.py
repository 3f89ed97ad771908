"""The only package that talks to Redis.

`async_store` serves the broker, `sync_store` Spark workers and the command line; `notifications`
waits for published changes. All take the calls that `korvet.scripts` builds.
"""
