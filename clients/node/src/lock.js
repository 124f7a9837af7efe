// Locks by their names: how they are asked for.
import { basename } from 'node:path';
import { now } from './clock.js';
import { Busy, fromAnswer, Refused, Unavailable } from './errors.js';
import { Held, Turn } from './held.js';
import { Gone } from './link.js';
import { firstLine, question } from './window.js';
import { opened, request } from './wire.js';

/** How much later than `wait` the answer of the server may come, in milliseconds. */
const GRACE = 2_000;
const UNITS = { us: 0.001, ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A time as milliseconds: a number, or text with a unit such as `'15m'`. */
export function millis(time) {
  if (time === undefined || time === null) return undefined;
  if (typeof time === 'number' && time >= 0) return time;
  const [, number, unit] = /^([\d.]+)(us|ms|s|m|h|d)$/.exec(String(time)) ?? [];
  if (unit === undefined) throw new Refused(`${JSON.stringify(time)} is no time: write 1500, '200ms', '30s' or '5m'`);
  return Number(number) * UNITS[unit];
}

/** A time as the server takes it: seconds. */
export const seconds = (time) => {
  const value = millis(time);
  return value === undefined || value === Number.POSITIVE_INFINITY ? undefined : value / 1000;
};

export const defaultLabel = () => `${basename(process.argv[1] ?? 'node').slice(0, 64)} (pid ${process.pid})`;

export class Lock {
  tellsProgress = true;
  /** Of how long it may wait, the request. */
  #requests = new Map();

  constructor(client, path, shown, fields, options = {}) {
    this.client = client;
    this.path = path;
    this.shown = shown;
    this.wait = millis(options.wait);
    this.fields = {
      ...client.defaults(),
      // The server may take the lock away if this program does not confirm that it lives: see window.js.
      confirm: true,
      ttl: seconds(options.ttl) ?? client.ttl,
      owner: options.owner,
      label: options.label ?? client.defaults().label,
      max_hold: seconds(options.maxHold),
      ...fields,
    };
  }

  /** Acquires the lock, and waits in the queue for up to `wait`. An aborted `signal` leaves the queue. */
  lock(options) {
    const { wait, signal, onWaiting } = options ?? {};
    return this.acquire(Held, wait === undefined ? this.wait : wait, signal, onWaiting);
  }

  /** Acquires the lock if it is free; else resolves with `undefined`. */
  async tryLock() {
    try {
      return await this.lock({ wait: 0 });
    } catch (error) {
      if (error instanceof Busy) return undefined;
      throw error;
    }
  }

  /** Runs `work` under the lock. If the lock is lost, rejects with `Lost` at once; `held.signal` tells `work`. */
  async run(work, options) {
    return during(await this.lock(options), work, (held) => held.release());
  }

  #request(wait, progress) {
    const key = progress ? `${wait}p` : wait;
    let text = this.#requests.get(key);
    if (text === undefined) {
      // Without progress nothing comes before the outcome, so that its status tells what it is.
      const fields = { ...this.fields, progress: this.tellsProgress ? progress : undefined };
      if (wait !== undefined && wait !== Number.POSITIVE_INFINITY) fields.wait = wait / 1000;
      const write = staysOpen(wait) ? opened : (...asked) => request('POST', ...asked);
      text = write(this.path, fields, this.client.links.place.token);
      if (this.#requests.size < 4) this.#requests.set(key, text);
    }
    return text;
  }

  async acquire(kind, time, signal, onWaiting) {
    const wait = millis(time);
    signal?.throwIfAborted();
    const links = this.client.links;
    const begun = now();
    let left = wait;
    let pause = 10;
    for (;;) {
      const text = this.#request(left, onWaiting !== undefined);
      let link;
      let stale = false;
      try {
        link = links.kept() ?? (await links.fresh());
        stale = link.used;
        const asked = question();
        link.send(text);
        const limit = left === undefined || left === Number.POSITIVE_INFINITY ? undefined : left + GRACE;
        const outcome = await link.until((reader) => this.#outcome(reader, asked, onWaiting), limit, signal);
        return this.#give(kind, link, outcome, staysOpen(left));
      } catch (error) {
        // The server is gone or was restarted. It is asked again while the caller waits.
        const unreachable = error instanceof Unavailable && error.cause !== undefined && error.retryable;
        if (!(error instanceof Gone) && !unreachable) throw error;
        if (wait !== undefined) left = Math.max(0, wait - (now() - begun));
        if (stale) continue;
        if (left === 0) {
          if (unreachable) throw error;
          throw new Unavailable(`the tidelock server is gone: ${error.message}`, { cause: error });
        }
        await rest(Math.min(pause, left ?? pause), signal);
        pause = Math.min(500, pause * 2);
      }
    }
  }

  #give(kind, link, outcome, open) {
    if (outcome.status !== undefined) {
      link.used = true;
      // The server does not wait for the end of a body that stays open.
      if (open) link.close();
      else this.client.links.put(link);
      throw fromAnswer(outcome.status, outcome.body);
    }
    if (outcome.remaining() === 0) {
      link.close();
      throw new Gone(`${this.shown} was granted and lost while this program was stopped`);
    }
    return new kind(this.client.links, outcome, link, this.shown, open);
  }

  /** A window, an answer that is an error, or `undefined` until one of them is here. */
  #outcome(reader, asked, onWaiting) {
    const { trust } = this.client.links.place;
    const sole = reader.soleLine();
    if (sole !== undefined) return firstLine(sole, asked, onWaiting, trust);
    if (!reader.head()) return undefined;
    if (reader.status !== 200) return reader.body();
    const lines = reader.lines();
    for (const [at, line] of lines.entries()) {
      const window = firstLine(line, asked, onWaiting, trust);
      if (window === undefined) continue;
      // What came with it may already say that it is lost.
      for (const later of lines.slice(at + 1)) window.read(later);
      return window;
    }
    if (reader.ended) throw new Gone('the stream ended without an outcome');
    return undefined;
  }
}

/**
 * Whether the body of a request stays open, so that the release needs no other connection. A try often fails: then
 * there is nothing to release, and with a whole body the connection can be used again.
 */
const staysOpen = (wait) => wait === undefined || wait > 0;

/** Waits for a pause, which a signal ends. */
const rest = (time, signal) =>
  new Promise((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', aborted);
      resolve();
    }, time);
    signal?.addEventListener('abort', aborted, { once: true });
  });

/** Runs `work` with what is held, and `end` behind it. A loss rejects at once. */
async function during(held, work, end, failed = end) {
  const lost = new Promise((_, reject) => {
    held.signal.addEventListener('abort', () => reject(held.lost), { once: true });
  });
  // Nobody may be listening any more when it fires.
  lost.catch(() => {});
  let result;
  try {
    result = await Promise.race([(async () => work(held))(), lost]);
  } catch (error) {
    // What went wrong under the lock is more than that it could not be released.
    await failed(held).catch(() => {});
    throw error;
  }
  await end(held);
  return result;
}

export class Election extends Lock {
  /** Becomes a candidate; resolves when it leads. */
  campaign(options) {
    return this.lock(options);
  }

  /** Leads once: runs `work` when this client is elected. */
  lead(work, options) {
    return this.run(work, options);
  }

  /** Who leads, or `undefined`. */
  async leader() {
    const { status, body } = await this.client.links.ask('GET', this.path);
    if (status === 404) return undefined;
    if (status >= 300) throw fromAnswer(status, body);
    return readLeader(JSON.parse(body));
  }

  /** Who leads, now and whenever it changes. */
  async *watch({ signal } = {}) {
    const links = this.client.links;
    const link = await links.fresh();
    try {
      link.send(request('GET', `${this.path}/watch`, undefined, links.place.token));
      const refused = await link.until(
        (reader) => (reader.head() ? (reader.status === 200 ? false : reader.body()) : undefined),
        undefined,
        signal,
      );
      if (refused) throw fromAnswer(refused.status, refused.body);
      for (;;) {
        const lines = await link.until(
          (reader) => {
            const come = reader.lines();
            return come.length > 0 || reader.ended ? come : undefined;
          },
          undefined,
          signal,
        );
        if (lines.length === 0) return;
        for (const line of lines) {
          const told = JSON.parse(line);
          if (told.event === 'leader') yield readLeader(told.leader);
        }
      }
    } catch (error) {
      if (error instanceof Gone) throw new Unavailable(`the tidelock server is gone: ${error.message}`, { cause: error });
      throw error;
    } finally {
      link.close();
    }
  }
}

function readLeader(told) {
  const leader = told && 'leader' in told ? told.leader : told;
  if (!leader) return undefined;
  return {
    label: leader.label,
    advertised: leader.advertised ?? undefined,
    token: BigInt(leader.token),
    leadsFor: leader.leads_for_ms,
  };
}

/** A job that runs once per period, on one of all clients. */
export class Once extends Lock {
  // It never waits.
  tellsProgress = false;

  /** Rejects with `DoneAlready` or `RunningNow` if it is not the turn of this client. */
  async start({ signal } = {}) {
    return this.acquire(Turn, undefined, signal);
  }

  /** Runs `work` if it is the turn of this client. Success records it as done, an error gives it back. */
  async run(work, options) {
    return during(
      await this.start(options),
      work,
      (turn) => turn.done(),
      (turn) => turn.failed(),
    );
  }
}
