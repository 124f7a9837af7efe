// The client: what people call.
import { fromAnswer, Refused } from './errors.js';
import { Links, PATIENCE } from './link.js';
import { defaultLabel, Election, Lock, millis, Once, seconds } from './lock.js';
import { Place } from './server.js';
import { segment } from './wire.js';
import { question } from './window.js';
import { now, slept } from './clock.js';

export {
  Busy,
  DoneAlready,
  Lost,
  NotFound,
  NotNow,
  Refused,
  RunningNow,
  TidelockError,
  TimedOut,
  TooMany,
  Unavailable,
} from './errors.js';
export { Held, Turn } from './held.js';
export { Election, Lock, Once };

/** Connects to a store through a private server, or to a server that runs already. */
export async function connect(url, options = {}) {
  if (typeof url === 'object' && url !== null) [url, options] = [undefined, url];
  const links = new Links(new Place(url ?? undefined, options.socket, options.token, options.ca));
  const locks = new Locks(links, options);
  try {
    await locks._ask('GET', '/healthz');
  } catch (error) {
    await links.close();
    throw error;
  }
  return locks;
}

const named = (names) => {
  if (!Array.isArray(names)) throw new Refused('lockAll takes a list of names');
  return names;
};

/** Locks of one store, through one server. */
export class Locks {
  #client;

  constructor(links, { ttl, label } = {}) {
    const defaults = { label: label ?? defaultLabel() };
    this.#client = { links, ttl: seconds(ttl), defaults: () => defaults };
  }

  async _ask(method, path, body, options) {
    const answer = await this.#client.links.ask(method, path, body, options);
    if (answer.status >= 300) throw fromAnswer(answer.status, answer.body);
    return answer.body ? JSON.parse(answer.body) : undefined;
  }

  #lock(name, fields, options) {
    return new Lock(this.#client, `/v1/locks/${segment(name)}`, `lock ${JSON.stringify(name)}`, fields, options);
  }

  /** A lock that one client holds at a time. */
  mutex(name, options) {
    return this.#lock(name, {}, options);
  }

  /** The lock of readers: many hold it at a time, but not together with a `mutex` of the name. */
  shared(name, options) {
    return this.#lock(name, { share: 'shared' }, options);
  }

  /** `count` of the `of` permits of a semaphore. */
  permits(name, count, { of, ...options }) {
    return this.#lock(name, { share: { permits: count, of } }, options);
  }

  /** Several locks, all or none, without deadlock. */
  lockAll(names, options) {
    return new Lock(this.#client, '/v1/locks', `locks ${JSON.stringify(names)}`, { names: named(names) }, options);
  }

  /** An election: one of the candidates leads until it is lost or resigns. */
  election(name, { advertise, ...options } = {}) {
    const path = `/v1/elections/${segment(name)}`;
    return new Election(this.#client, path, `election ${JSON.stringify(name)}`, { advertise }, options);
  }

  /** A job that runs once per period (`every`), or once for a named `slot`. */
  once(name, { every, slot, retryFailed, ...options } = {}) {
    const fields = { every: seconds(every), slot, retry_failed: retryFailed };
    return new Once(this.#client, `/v1/once/${segment(name)}`, `job ${JSON.stringify(name)}`, fields, options);
  }

  /** Who holds a lock and who waits for it. */
  async look(name) {
    return view(await this._ask('GET', `/v1/locks/${segment(name)}`));
  }

  /** All locks that are held or waited for. */
  async lookAll(prefix) {
    const query = prefix === undefined ? '' : `?prefix=${encodeURIComponent(prefix)}`;
    const told = await this._ask('GET', `/v1/locks${query}`);
    return (Array.isArray(told) ? told : told.locks).map(view);
  }

  /** Takes a claim away. Its client is told; what it does meanwhile is not prevented. */
  async evict(name, claim, reason) {
    const query = reason === undefined ? '' : `?reason=${encodeURIComponent(reason)}`;
    const path = `/v1/locks/${segment(name)}/claims/${segment(claim)}${query}`;
    const { status, body } = await this.#client.links.ask('DELETE', path);
    if (status === 404) return false;
    if (status >= 300) throw fromAnswer(status, body);
    return JSON.parse(body).evicted ?? true;
  }

  /** Acquires a lock that outlives this program: until it is released, or `ttl` ends without a renewal. */
  async acquireTicket(name, { ttl, wait, owner, label } = {}) {
    const body = { ...this.#client.defaults(), ttl: seconds(ttl) ?? this.#client.ttl, wait: seconds(wait), owner };
    if (label !== undefined) body.label = label;
    const limit = wait === undefined ? undefined : millis(wait) + PATIENCE;
    // Not again: the first question may have left a ticket behind.
    return this.#ticket(`/v1/tickets/${segment(name)}`, body, undefined, { again: false, limit });
  }

  /** Renews a ticket for another ttl. Rejects with `Lost` if it has ended. */
  async renewTicket(ticket) {
    return this.#ticket('/v1/tickets/renew', { ticket: String(ticket) }, String(ticket));
  }

  async #ticket(path, body, text, options) {
    const asked = question();
    const told = await this._ask('POST', path, body, options);
    const remaining = Math.max(0, asked.at + told.until_us / 1000 - now() - slept(asked.ahead));
    const shown = text ?? told.ticket;
    return { text: shown, token: BigInt(told.token), remaining, toString: () => shown };
  }

  /** Releases a ticket. Rejects with `Lost` if it has ended. */
  async releaseTicket(ticket) {
    await this._ask('POST', '/v1/tickets/release', { ticket: String(ticket) }, { again: false });
  }

  /** The stock of an item. */
  stock(item) {
    return new Stock(this, item);
  }

  /** What the store and the server can do. */
  async abilities() {
    return this._ask('GET', '/v1/abilities');
  }

  /** The process of the private server, if there is one. */
  get serverPid() {
    return this.#client.links.place.pid;
  }

  /** Releases all that is held, and ends a private server. */
  async close() {
    await this.#client.links.close();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

/** Limited inventory that many clients sell from. */
export class Stock {
  #locks;
  #path;

  constructor(locks, item) {
    this.#locks = locks;
    this.#path = `/v1/stock/${segment(item)}`;
  }

  /** Creates the stock, or finds it. */
  async open(amount, { segments } = {}) {
    await this.#locks._ask('POST', `${this.#path}/open`, { amount, segments });
    return this;
  }

  /** Sells to an order. The same order is sold to once, also if it asks again. */
  async take(order, amount = 1) {
    return (await this.#locks._ask('POST', `${this.#path}/take`, { order, amount })).sale;
  }

  /** Reserves for an order, which must `confirm` within `ttl`. */
  async reserve(order, amount = 1, ttl = 60_000) {
    return (await this.#locks._ask('POST', `${this.#path}/reserve`, { order, amount, ttl: seconds(ttl) })).sale;
  }

  /** Makes a reservation a sale. False: it has expired. */
  async confirm(order) {
    return (await this.#locks._ask('POST', `${this.#path}/confirm`, { order })).confirmed;
  }

  /** Returns what an order has. False: it has nothing. */
  async giveBack(order) {
    return (await this.#locks._ask('POST', `${this.#path}/give_back`, { order })).given_back;
  }

  /** How many items are left. */
  async remaining() {
    return (await this.#locks._ask('GET', this.#path)).remaining;
  }
}

const bigint = (token) => (token === null || token === undefined ? undefined : BigInt(token));
const claim = (told) => ({
  claim: told.claim,
  label: told.label,
  owner: told.owner ?? undefined,
  share: told.share,
  token: bigint(told.token),
  age: told.age_ms,
  expiresIn: told.expires_in_ms,
});
const view = (told) => ({
  name: told.name,
  token: bigint(told.token),
  holders: (told.holders ?? []).map(claim),
  waiters: (told.waiters ?? []).map(claim),
});
