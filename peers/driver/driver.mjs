// What every peer in JavaScript does: see ../README.md. A library gives its locks; this times them.
import { createInterface } from "node:readline";

const WARM_UP = 50;
const now = () => process.hrtime.bigint();
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ready = async () => {
  console.log("ready");
  await lines.next();
};

const pair = (lock) => async () => {
  const asked = now();
  const held = await lock();
  const waited = Number(now() - asked);
  await held.release();
  return waited;
};

/** Calls each work again and again. A work says how long it waited, in nanoseconds. */
const timed = async (works, millis) => {
  await ready();
  const start = now();
  const elapsed = () => Number(now() - start);
  const waits = [];
  const go = async (work) => {
    while (elapsed() < millis * 1e6) waits.push(await work());
  };
  await Promise.all(works.map(go));
  const seconds = elapsed() / 1e9;
  waits.sort((a, b) => a - b);
  const at = (part) => (waits[Math.min(waits.length - 1, Math.floor(waits.length * part))] ?? 0) / 1e3;
  const waits_us = { p50: at(0.5), p99: at(0.99), max: at(1) };
  console.log(JSON.stringify({ pairs: waits.length, seconds, waits_us }));
};

/** `connect(servers)` gives `lock(name)`, and `attempt(name)`, which is true if a lock was taken. */
export const main = async (connect) => {
  const [verb, servers, name, ...more] = process.argv.slice(2);
  const library = connect(servers.split(","));
  if (verb === "pairs") {
    const warm = pair(() => library.lock(`${name}-warm`));
    for (let i = 0; i < WARM_UP; i++) await warm();
    const distinct = more[2] === "distinct";
    const names = Array.from({ length: Number(more[0]) }, (_, task) => (distinct ? `${name}-${task}` : name));
    await timed(names.map((name) => pair(() => library.lock(name))), Number(more[1]));
  } else if (verb === "try" && library.attempt) {
    const held = await library.lock(name);
    const attempt = async () => {
      const asked = now();
      if (await library.attempt(name)) throw new Error("a lock that is held was taken");
      return Number(now() - asked);
    };
    await timed([attempt], Number(more[0]));
    await held.release();
  } else if (verb === "hold") {
    const locks = [];
    for (let i = 0; i < Number(more[0]); i++) locks.push(await library.lock(`${name}-${i}`));
    await ready();
    for (const lock of locks) await lock.release();
    console.log(JSON.stringify({ pairs: locks.length, seconds: 0 }));
  } else {
    console.error(`there is no ${verb} of this library`);
    process.exit(3);
  }
  process.exit(0);
};
