// Append a record and write a key of your own in one step, from Node.js.
//
//   korvet functions load --redis redis://localhost:6379
//   node publish.mjs redis://localhost:6379 orders ann "3 cups"
//
// Prints the record's partition and offset. The hash counts the orders of each customer.
import { createClient } from "redis";

const [url, topic, key, value] = process.argv.slice(2);
const redis = await createClient({ url }).connect();
const { partitions } = JSON.parse(await redis.hGet("korvet:topics", topic));
const number = await redis.fCall("korvet_partition_of", { arguments: [key, String(partitions)] });
const stream = `korvet:${topic}:${number}`;
const keys = [stream, ...["log", "index", "producers", "open_txns"].map((end) => `{${stream}}:${end}`)];
const [offset] = await redis
  .multi()
  .fCall("korvet_append", { keys, arguments: ["", "0", "4", "key", key, "value", value] })
  .hIncrBy(`{${stream}}:customers`, key, 1)
  .exec();
console.log(`${number}\t${offset}`);
await redis.close();
