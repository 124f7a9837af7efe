// What every peer in JavaScript does: see ../README.md. A library gives its locks; this times them.
import { openSync, readSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

const WARM_UP = 50;
/** How long a holder of many locks may take to give them back before it just ends, in milliseconds. */
const RELEASE_LIMIT = 2_000;
const now = () => process.hrtime.bigint();
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** For how long a client that dies still holds, in milliseconds. */
export const lease = Number(process.env.LEASE_MS ?? 30_000);

/** Each line that is read is a turn. */
const turns = async (turn) => {
  begun = true;
  console.log("ready");
  for await (const _ of lines) console.log(await turn());
};

/** Where the holder writes its number, and how often another one stood there in this turn. */
const hands = process.env.HANDS ? openSync(process.env.HANDS, "r+") : undefined;
let handed = 0;
const note = () => {
  if (hands === undefined) return;
  const number = Buffer.alloc(4);
  readSync(hands, number, 0, 4, 0);
  if (number.readUInt32LE() === process.pid) return;
  handed += 1;
  number.writeUInt32LE(process.pid);
  writeSync(hands, number, 0, 4, 0);
};

/** A number that nobody may change without the lock: see ../README.md. */
const count = process.env.COUNT ? openSync(process.env.COUNT, "r+") : undefined;
let begun = false;
const add = () => {
  if (count === undefined || !begun) return;
  const number = Buffer.alloc(12);
  readSync(count, number, 0, 12, 0);
  const other = number.readUInt32LE(8);
  if (other !== 0) throw new Error(`the process ${other} holds the lock, too`);
  number.writeUInt32LE(process.pid, 8);
  writeSync(count, number, 8, 4, 8);
  readSync(count, number, 0, 8, 0);
  number.writeBigUInt64LE(number.readBigUInt64LE() + 1n);
  writeSync(count, number, 0, 8, 0);
  writeSync(count, Buffer.alloc(4), 0, 4, 8);
};

const pair = (lock) => async () => {
  const asked = now();
  const held = await lock();
  const waited = Number(now() - asked);
  note();
  add();
  await held.release();
  return waited;
};

/** In each turn, calls each work again and again. A work says how long it waited, in nanoseconds. */
const timed = (works, millis) =>
  turns(async () => {
    handed = 0;
    const start = now();
    const elapsed = () => Number(now() - start);
    const waits = [];
    const go = async (work) => {
      while (elapsed() < millis * 1e6) waits.push(await work());
    };
    await Promise.all(works.map(go));
    return summary(waits, elapsed());
  });

/** Both in nanoseconds. */
const summary = (waits, time) => {
  waits.sort((a, b) => a - b);
  const at = (part) => (waits[Math.min(waits.length - 1, Math.floor(waits.length * part))] ?? 0) / 1e3;
  const waits_us = { p50: at(0.5), p99: at(0.99), max: at(1) };
  return JSON.stringify({ pairs: waits.length, seconds: time / 1e9, waits_us, handed: hands && handed });
};

/**
 * `connect(servers)` gives `lock(name)`, `kept(name)`, a lock that is kept whatever its lease, and `attempt(name)`,
 * which is true if a lock was taken.
 */
export const main = async (connect) => {
  const [verb, servers, name, ...more] = process.argv.slice(2);
  const library = connect(servers.split(","));
  if (verb !== "hold") {
    const warm = pair(() => library.lock(`${name}-warm`));
    for (let i = 0; i < WARM_UP; i++) await warm();
  }
  if (verb === "pairs") {
    const distinct = more[2] === "distinct";
    const names = Array.from({ length: Number(more[0]) }, (_, task) => (distinct ? `${name}-${task}` : name));
    await timed(names.map((name) => pair(() => library.lock(name))), Number(more[1]));
  } else if (verb === "try") {
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
    for (let i = 0; i < Number(more[0]); i++) locks.push(await library.kept(`${name}-${i}`));
    await turns(() => summary(locks.map(() => 0), 0));
    const start = Date.now();
    for (const lock of locks) {
      if (Date.now() - start > RELEASE_LIMIT) break;
      await lock.release();
    }
  } else if (verb === "wait") {
    console.log("ready");
    for await (const _ of lines) {
      const asked = now();
      const held = await library.lock(name);
      const waited = Number(now() - asked);
      console.log(summary([waited], waited));
      await held.release();
    }
  } else {
    console.error(`there is no ${verb} of this library`);
    process.exit(3);
  }
  process.exit(0);
};
