// Acquires one lock again and again, and notes each moment at which it knows to hold it: see
// ../../python/tests/hammer.py, which reads the same clock as this.
import { openSync, readSync, writeSync } from 'node:fs';
import { setTimeout as rest } from 'node:timers/promises';
import { connect, Lost, TidelockError, Unavailable } from '../src/index.js';

const { NAME, TTL, LOG } = process.env;
const ttl = Number(TTL) * 1000;
const log = openSync(LOG, 'a');
const LENGTHS = [0, 1, 50, 400, ttl * 2];
const uptime = openSync('/proc/uptime', 'r');
const buffer = Buffer.alloc(64);

/**
 * By how much the time since boot, which other programs know, too, is ahead of hrtime, in nanoseconds. It is rounded down
 * to 10 ms: this waits for a step of it, between two readings that are close together.
 */
const BASE = (() => {
  const read = () => Number.parseFloat(buffer.latin1Slice(0, readSync(uptime, buffer, 0, 64, 0)));
  for (;;) {
    let before = process.hrtime.bigint();
    let last = read();
    for (;;) {
      const between = process.hrtime.bigint();
      const next = read();
      const after = process.hrtime.bigint();
      if (next === last) {
        [before, last] = [between, next];
        continue;
      }
      if (after - before > 100_000n) break;
      return BigInt(Math.round(next * 100)) * 10_000_000n - (before + after) / 2n;
    }
  }
})();
const now = () => process.hrtime.bigint() + BASE;

let end = false;
process.stdin.resume().on('end', () => {
  end = true;
});

let locks;
while (locks === undefined) {
  try {
    locks = await connect();
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error;
  }
}
while (!end) {
  try {
    await using_(await locks.mutex(NAME, { wait: 2000, ttl }).lock(), async (held) => {
      const until = performance.now() + LENGTHS[Math.floor(Math.random() * LENGTHS.length)];
      for (;;) {
        const moment = now();
        if (!held.isHeld()) return;
        writeSync(log, `${held.token} ${moment}\n`);
        if (performance.now() >= until || end) return;
        await rest(10);
      }
    });
  } catch (error) {
    if (!(error instanceof TidelockError) || (!error.retryable && !(error instanceof Lost))) throw error;
  }
}
await locks.close();

/** What `await using` does, for a Node that cannot read it. */
async function using_(held, work) {
  try {
    await work(held);
  } finally {
    await held[Symbol.asyncDispose]();
  }
}
