"""Work on a queue of jobs, in as many processes as you start.

python examples/jobs.py redis://localhost:6379 enqueue 10
python examples/jobs.py redis://localhost:6379 work       # until Ctrl-C; --once ends if idle
"""

import sys
from time import sleep
from typing import Any

import redis

from korvet import AcquiredRecord, Korvet, Queue, StoreError


def resize(job: AcquiredRecord, pipe: Any) -> None:
    """Count an image's bytes, in one step with the end of its job."""
    if job.value == b"image-7" and job.deliveries == 1:
        raise OSError("the disk is full")
    pipe.hincrby("images", "bytes", len(job.value or b""))
    pipe.hincrby("images", "count", 1)
    print(job.value, "delivery", job.deliveries, flush=True)


def work(images: Queue, client: redis.Redis, idle_s: float | None) -> None:
    """Work until nothing has come for `idle_s` seconds, also over failures of Redis."""
    while True:
        try:
            images.work(resize, client=client, idle_s=idle_s)
            return
        except (StoreError, redis.RedisError) as error:
            print("retrying:", error, file=sys.stderr)
            sleep(1)


if __name__ == "__main__":
    url, command, *more = sys.argv[1:]
    with redis.Redis.from_url(url) as client, Korvet(client) as log:
        images = Queue(log, "images")
        images.create(retries=3, backoff_s=0.1)
        if command == "work":
            work(images, client, 1.0 if "--once" in more else None)
        else:
            for number in range(int(more[0])):
                images.enqueue(b"image-%d" % number, unique=f"image-{number}")
