// node-redlock: lock and release one name.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const Redlock = require("redlock").default;

const { scenario, servers, seconds } = JSON.parse(process.argv[2]);
if (scenario !== "pair") throw new Error(`no scenario ${scenario}`);
const clients = servers.map((server) => {
  const [host, port] = server.split(":");
  return new Redis({ host, port: Number(port) });
});
const redlock = new Redlock(clients, {});
const pair = async () => (await redlock.acquire(["peer"], 2000)).release();

for (let i = 0; i < 200; i++) await pair();
const start = process.hrtime.bigint();
const elapsed = () => Number(process.hrtime.bigint() - start) / 1e9;
let pairs = 0;
while (elapsed() < seconds) {
  await pair();
  pairs++;
}
console.log(JSON.stringify({ pairs, seconds: elapsed() }));
process.exit(0);
