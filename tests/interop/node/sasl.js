// Produce a record and read it: node sasl.js BROKER CA_FILE MECHANISM USER PASSWORD TOPIC VALUE
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [broker, ca, mechanism, username, password, topic, value] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [broker],
  ssl: { ca: [fs.readFileSync(ca)], servername: "localhost" },
  sasl: { mechanism, username, password },
  logLevel: logLevel.NOTHING,
  retry: { retries: 3 },
});

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "kafkajs" });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const read = await new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
  });
  await consumer.disconnect();
  console.log(read);
}

main().catch((error) => {
  console.error(`${error.name}: ${error.message}`);
  process.exit(1);
});
