"""Poll pages like open browser windows, and scrape like Prometheus, in a separate process.

    python -m benchmarks.watching http://127.0.0.1:9080 GROUP

Opens the overview, the topics, and one group. Repeats their reads of `/api` at the intervals of
the pages' script, and scrapes both pages of metrics. Ends with SIGTERM. After a pause (SIGSTOP) it
does not catch up: the reads have random phases again.
"""

import random
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import quote

TIMEOUT_S = 30
PAGES = ("/", "/topics", "/groups", "/group?id={group}")
POLLS = {
    "/api/overview": 2.0,
    "/api/topics?q=&page=1&lags=0": 5.0,
    "/api/group?id={group}&history=0": 2.0,
    "/metrics": 15.0,
    "/metrics/kafka": 30.0,
}
"""Seconds between two reads of a page."""


def read(url: str) -> None:
    """Read a page. If it is not ready yet, or late, leave it to the next read."""
    try:
        urllib.request.urlopen(url, timeout=TIMEOUT_S).read()
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
    except (TimeoutError, ConnectionError):
        pass  # the broker was stopped in the meantime


def main(base: str, group: str) -> None:
    """Poll until the process is ended."""
    paths = {path: path.replace("{group}", quote(group)) for path in (*PAGES, *POLLS)}
    for path in PAGES:
        read(base + paths[path])
    due = spread()
    while True:
        path = min(due, key=lambda each: due[each])
        time.sleep(max(0.0, due[path] - time.monotonic()))
        if time.monotonic() - due[path] > POLLS[path]:
            due = spread()
            continue
        due[path] = time.monotonic() + POLLS[path]
        read(base + paths[path])


def spread() -> dict[str, float]:
    """Return the times of the next reads."""
    now = time.monotonic()
    return {path: now + random.random() * interval for path, interval in POLLS.items()}


if __name__ == "__main__":
    main(*sys.argv[1:3])
