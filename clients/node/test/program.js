// A program under test: reads steps as JSON lines, does them with the client, and answers each with a line.
import { readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { connect, Refused, TidelockError } from '../src/index.js';

const SEE_LIMIT = 30_000;
const locks = await connect(process.env.TIDELOCK_URL);
const held = new Map();

const time = (seconds) => (seconds === undefined ? undefined : seconds * 1000);

function lockOf({ name, names, share = 'exclusive', wait, ttl }) {
  const options = { wait: time(wait), ttl: time(ttl) };
  if (names !== undefined) return locks.lockAll(names, options);
  if (share === 'shared') return locks.shared(name, options);
  if (typeof share === 'object') return locks.permits(name, share.permits, { of: share.of, ...options });
  return locks.mutex(name, options);
}

/** Adds one to the number in a file in two steps, which only works for one process at a time. */
function countUnderLock(path) {
  const [number, holder] = readFileSync(path, 'utf8').split(' ');
  if (holder !== undefined) return `overlap with ${holder}`;
  writeFileSync(path, `${number} ${process.pid}`);
  writeFileSync(path, `${Number(number) + 1}`);
  return undefined;
}

const steps = {
  async lock(step) {
    const got = await lockOf(step).lock();
    held.set(step.as, got);
    return { result: 'held', token: String(got.token) };
  },
  async release(step) {
    await held.get(step.as).release();
    return { result: 'released' };
  },
  async is_held(step) {
    return { result: held.get(step.as).isHeld() ? 'held' : 'not_held' };
  },
  lost(step) {
    const { signal } = held.get(step.as);
    return new Promise((resolve) => {
      const tell = () => resolve({ result: signal.reason.kind });
      if (signal.aborted) tell();
      else signal.addEventListener('abort', tell);
    });
  },
  async see(step) {
    const end = performance.now() + SEE_LIMIT;
    for (;;) {
      const { holders, waiters } = await locks.look(step.name);
      if (holders.length === step.holders && waiters.length === step.waiters) return { result: 'seen' };
      if (performance.now() > end) return { result: `${holders.length} holders, ${waiters.length} waiters` };
    }
  },
  async evict(step) {
    const [{ claim }] = (await locks.look(step.name)).holders;
    return { result: (await locks.evict(step.name, claim, step.reason)) ? 'evicted' : 'nobody' };
  },
  async count(step) {
    for (let time = 0; time < step.times; time++) {
      const wrong = await locks.mutex(step.name).run(() => countUnderLock(step.file));
      if (wrong) return { result: wrong };
    }
    return { result: 'counted' };
  },
  async total(step) {
    return { result: readFileSync(step.file, 'utf8') };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  let answer;
  try {
    answer = await steps[step.do](step);
  } catch (error) {
    if (!(error instanceof TidelockError)) throw error;
    const result = error instanceof Refused ? 'refused' : error.kind;
    answer = { result, message: error.message, retryable: error.retryable };
  }
  console.log(JSON.stringify(answer));
}
await locks.close();
