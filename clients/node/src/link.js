// Connections to the server: made when needed, kept, and used again.
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Refused, Unavailable } from './errors.js';
import { released } from './window.js';
import { Reader, request } from './wire.js';

/** How long a call may take that does not wait for a lock, in milliseconds. */
export const PATIENCE = 15_000;

/** The connection ended, or what came is not an answer. */
export class Gone extends Error {}

/** One connection, used by one call at a time. */
export class Link {
  reader = new Reader();
  /** Whether it has carried an answer, so that the server may have closed it since. */
  used = false;
  /** Whether the end of a stream has to be read before the next answer. */
  streams = false;
  gone = false;
  /** Called when more has come, or the connection has ended. */
  came = undefined;

  constructor(socket) {
    this.socket = socket;
    socket.on('data', (data) => {
      this.reader.feed(data);
      this.came?.();
    });
    socket.on('error', () => {});
    const ended = () => {
      if (this.gone) return;
      this.gone = true;
      this.came?.();
    };
    socket.on('end', ended);
    socket.on('close', ended);
  }

  send(text) {
    if (this.gone) throw new Gone('the server closed the connection');
    // A program with nothing else to do may end while connections are kept.
    this.socket.ref();
    this.socket.write(text, 'utf8');
  }

  /**
   * Resolves when `read` gives something other than `undefined`. `limit` in milliseconds and `signal` end the wait, and
   * the connection with it.
   */
  until(read, { limit, signal } = {}) {
    return new Promise((resolve, reject) => {
      let timer;
      const settle = (act, value) => {
        this.came = undefined;
        if (timer !== undefined) clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
        act(value);
      };
      const fail = (error) => {
        this.close();
        settle(reject, error);
      };
      const aborted = () => fail(signal.reason);
      const step = () => {
        try {
          if (this.streams && this.reader.endOfStream()) this.streams = false;
          const value = this.streams ? undefined : read(this.reader);
          if (value !== undefined) settle(resolve, value);
          else if (this.gone) fail(new Gone('the server closed the connection'));
        } catch (error) {
          fail(error instanceof Error && error.kind ? error : new Gone(error.message));
        }
      };
      this.came = step;
      if (signal?.aborted) return aborted();
      signal?.addEventListener('abort', aborted);
      if (limit !== undefined) timer = setTimeout(() => fail(new Gone('it did not answer in time')), limit);
      step();
    });
  }

  async exchange(text, options) {
    this.send(text);
    const answer = await this.until((reader) => reader.body(), options);
    this.used = true;
    return answer;
  }

  /** Ends the hold whose stream this is. Rejects with what came of it unless it was released. */
  async end(text) {
    this.send(text);
    const read = (reader) => {
      if (released(reader.lines())) return true;
      if (reader.ended) throw new Gone('the stream ended without a word');
      return undefined;
    };
    await this.until(read, { limit: PATIENCE });
  }

  close() {
    this.gone = true;
    this.socket.destroy();
  }
}

/** The server, and the connections to it that nobody uses at the moment. */
export class Links {
  #idle = [];
  #open = new Set();
  closed = false;

  constructor(place) {
    this.place = place;
  }

  /** A kept connection, at once, or `undefined`. */
  kept() {
    if (this.closed) throw new Refused('this client is closed: connect again', { kind: 'closed' });
    for (;;) {
      const link = this.#idle.pop();
      if (link === undefined || !link.gone) return link;
      this.#open.delete(link);
    }
  }

  async fresh() {
    if (this.closed) throw new Refused('this client is closed: connect again', { kind: 'closed' });
    const address = await this.place.address();
    const link = await new Promise((resolve, reject) => {
      const socket = (address.tls ? connectTls : connect)(address);
      socket.setTimeout(PATIENCE, () => socket.destroy(new Error('timed out')));
      socket.once('error', (cause) => {
        const where = this.place.socket ?? 'its own socket';
        reject(new Unavailable(`the tidelock server at ${where} cannot be reached: ${cause.message}`, { cause }));
      });
      socket.once(address.tls ? 'secureConnect' : 'connect', () => {
        socket.setTimeout(0);
        resolve(new Link(socket));
      });
    });
    this.#open.add(link);
    link.socket.once('close', () => this.#open.delete(link));
    return link;
  }

  put(link) {
    if (this.closed || link.gone || !link.reader.keeps) return link.close();
    link.socket.unref();
    this.#idle.push(link);
  }

  /** Sends a request and reads its answer. `again`: it may be sent twice if a kept connection was closed. */
  async ask(method, path, body, { again = true, limit = PATIENCE, signal } = {}) {
    const text = request(method, path, body, this.place.token);
    for (;;) {
      const link = this.kept() ?? (await this.fresh());
      const stale = link.used;
      try {
        const answer = await link.exchange(text, { limit, signal });
        this.put(link);
        return answer;
      } catch (error) {
        link.close();
        if (!(error instanceof Gone)) throw error;
        if (stale && again && !error.message.includes('in time')) continue;
        throw new Unavailable(`the tidelock server did not answer: ${error.message}`, { cause: error });
      }
    }
  }

  async close() {
    this.closed = true;
    for (const link of this.#open) link.close();
    this.#idle = [];
    await this.place.close();
  }
}
