"""A shop's HTTP API with FastAPI: orders without an outbox, features of customers from a topic.

pip install fastapi uvicorn
REDIS_URL=redis://localhost:6379 uvicorn --app-dir examples api:app

curl -d '{"customer": "ann", "item": "cups"}' -H content-type:application/json :8000/orders
curl :8000/customers/ann

Any Kafka producer, such as a Spark job, writes the topic `features`: a customer's name is the key.
The table of that topic has the newest value: one HGET reads it.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio
from fastapi import FastAPI
from pydantic import BaseModel

from korvet import AsyncKorvet, Record

TOPICS: dict[str, dict[str, str]] = {"orders": {}, "features": {"table.enable": "true"}}


class Order(BaseModel):
    """What a customer orders."""

    customer: str
    item: str
    count: int = 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect to Redis, and create the topics that it has not."""
    client = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"])
    async with client, AsyncKorvet(client) as log:
        known = {topic.name for topic in await log.topics()}
        for name in TOPICS.keys() - known:
            await log.create_topic(name, partitions=2, configs=TOPICS[name])
        app.state.redis, app.state.log = client, log
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def order(order: Order) -> dict[str, int | None]:
    """Store an order and publish it, in one step."""
    record = Record(order.model_dump_json().encode(), key=order.customer.encode())
    async with app.state.redis.pipeline() as pipe:
        pipe.hincrby(f"ordered:{order.customer}", order.item, order.count)
        receipt = await app.state.log.publish(pipe, "orders", record)  # in place of an outbox
        await pipe.execute()
    return {"partition": receipt.partition, "offset": receipt.offset}


@app.get("/customers/{name}")
async def customer(name: str) -> dict[str, str]:
    """Return what the customer has ordered, and the newest features of the customer."""
    partition = await app.state.log.hash_tag("features", name.encode())
    async with app.state.redis.pipeline(transaction=False) as pipe:
        pipe.hgetall(f"ordered:{name}").hget(f"{{{partition}}}:table", name)
        ordered, features = await pipe.execute()
    counts = ", ".join(f"{count.decode()} {item.decode()}" for item, count in ordered.items())
    return {"ordered": counts, "features": (features or b"").decode()}
