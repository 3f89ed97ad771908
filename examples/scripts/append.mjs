// Append records to a topic from Node.js: no broker, no Kafka client, only Redis and the scripts.
//
//   korvet scripts export scripts
//   korvet topics create orders
//   npm install
//   node append.mjs redis://localhost:6379 orders first second
//
// Prints the offset of each record.
import { readFile } from "node:fs/promises";
import { createClient } from "redis";

const [url, topic, ...values] = process.argv.slice(2);
const { scripts, errors } = JSON.parse(await readFile("scripts/contract.json", "utf8"));
const redis = await createClient({ url }).connect();

// Call a script with its KEYS and ARGV by name; the contract has their order.
async function call(name, keys, args, repeated = []) {
  const contract = scripts[name];
  const inOrder = (rows, given) => rows.filter((row) => !row.repeated).map((row) => given[row.name]);
  const options = {
    keys: inOrder(contract.keys, keys),
    arguments: [...inOrder(contract.args, args), ...repeated].map(String),
  };
  let reply;
  try {
    reply = await redis.evalSha(contract.sha1, options);
  } catch (error) {
    if (!error.message.startsWith("NOSCRIPT")) throw error;
    reply = await redis.eval(await readFile(`scripts/${contract.file}`, "utf8"), options);
  }
  const named = Object.fromEntries(contract.returns.map((row, at) => [row.name, reply[at]]));
  if (named.error) {
    const code = Object.keys(errors).find((each) => errors[each] === named.error);
    throw new Error(`${name} refused: ${code}`);
  }
  return named;
}

const definition = JSON.parse(await redis.hGet("korvet:topics", topic));
const partition = `korvet:${topic}:0`;
// The other keys of the partition have its stream's name in braces, and their own.
const names = scripts["log.append"].keys.map((row) => row.name);
const keys = Object.fromEntries(
  names.map((name) => [name, name === "stream" ? partition : `{${partition}}:${name}`]),
);
const now = Date.now();
// In the `record` layout an entry is the record's fields: their number, then names and values.
const fields = values.flatMap((value) => [4, "value", value, "timestamp", now]);
const reply = await call(
  "log.append",
  keys,
  {
    topic_id: definition.id,
    stamp: 0,
    count: values.length,
    size: Buffer.byteLength(values.join("")),
    max_timestamp: now,
    producer_id: -1,
    producer_epoch: -1,
    base_sequence: -1,
    transaction: -1,
  },
  fields,
);
values.forEach((value, at) => console.log(`${reply.base + at}\t${value}`));
await redis.close();
