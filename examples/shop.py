"""A shop whose orders are keys of its Redis and records of a topic, and a limit for each customer.

python examples/shop.py redis://localhost:6379 buy ann cups 3
python examples/shop.py redis://localhost:6379 limit      # until Ctrl-C; --once ends if idle

`buy` takes from the stock and publishes the order in one step: there is no outbox. `limit` counts
the orders of each customer, once each: `buy` refuses a customer who has too many in a minute.
"""

import asyncio
import sys

import redis.asyncio

from korvet import AsyncKorvet, KorvetError, Record

STOCK, PER_MINUTE, MINUTE_MS = 10, 2, 60_000


async def buy(
    client: redis.asyncio.Redis, log: AsyncKorvet, customer: str, item: str, count: int
) -> str:
    """Take items from the stock and publish the order, or do nothing."""
    seconds, _ = await client.time()
    if int(await client.get(f"orders:{customer}:{seconds // 60}") or 0) >= PER_MINUTE:
        return f"{customer} has ordered {PER_MINUTE} times in this minute"
    while True:
        async with client.pipeline() as pipe:
            await pipe.watch("stock")
            left = int(await pipe.hget("stock", item) or STOCK) - count
            if left < 0:
                return f"{left + count} {item} are left"
            pipe.multi()
            pipe.hset("stock", item, left)
            record = Record(f"{count} {item}".encode(), key=customer.encode())
            order = await log.publish(pipe, "orders", record)
            try:
                await pipe.execute()
            except redis.WatchError:
                continue  # Another order took from the stock: look again.
            return f"order {order.offset} of {count} {item}, {left} left"


async def limit(client: redis.asyncio.Redis, log: AsyncKorvet, idle_s: float | None) -> None:
    """Count each customer's orders of the last minutes, each once."""
    async with await log.consumer("limits", ["orders"], idle_s=idle_s) as consumer:
        async for record in consumer:
            key = f"orders:{(record.key or b'').decode()}:{record.timestamp_ms // MINUTE_MS}"
            try:
                async with client.pipeline() as pipe:
                    await consumer.check(pipe)
                    pipe.multi()
                    pipe.incr(key)
                    pipe.pexpire(key, 2 * MINUTE_MS)
                    await consumer.commit_with(pipe)
                    await pipe.execute()
            except (redis.WatchError, KorvetError):
                pass  # Nothing happened: the order is read again.


async def main(url: str, command: str, *more: str) -> None:
    """Buy, or limit."""
    client = redis.asyncio.Redis.from_url(url)
    async with client, AsyncKorvet(client) as log:
        if not any(topic.name == "orders" for topic in await log.topics()):
            await log.create_topic("orders", partitions=2, configs={"offset.mode": "dense"})
        if command == "buy":
            customer, item, count = more
            print(await buy(client, log, customer, item, int(count)))
        else:
            await limit(client, log, 1.0 if "--once" in more else None)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
