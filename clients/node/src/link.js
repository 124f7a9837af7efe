// Connections to the server: made when needed, kept, and used again.
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Alarm } from './alarm.js';
import { now } from './clock.js';
import { Refused, Unavailable } from './errors.js';
import { released } from './window.js';
import { Reader, request } from './wire.js';

/** How long a call may take that does not wait for a lock, in milliseconds. */
export const PATIENCE = 15_000;
/** What all connections read into: each of them has taken its bytes out before the next one reads. */
const BUFFER = Buffer.allocUnsafeSlow(65_536);
/** Confirmations that share a message. */
const BATCH = 64;

/** The connection ended, or what came is not an answer. */
export class Gone extends Error {}

/** A wait for an answer. It is settled once: by what comes, by the end of the connection, by time or by a signal. */
class Wait {
  constructor(link, read, resolve, reject, signal) {
    this.link = link;
    this.read = read;
    this.resolve = resolve;
    this.reject = reject;
    this.signal = signal;
    this.aborted = signal === undefined ? undefined : () => this.fail(signal.reason);
    this.at = this.early = 0;
  }

  came() {
    const { link } = this;
    try {
      if (link.streams && link.reader.endOfStream()) link.streams = false;
      const value = link.streams ? undefined : this.read(link.reader);
      if (value !== undefined) {
        this.settle();
        this.resolve(value);
      } else if (link.gone) {
        this.fail(new Gone('the server closed the connection'));
      }
    } catch (error) {
      this.fail(error instanceof Error && error.kind ? error : new Gone(error.message));
    }
  }

  ring() {
    this.fail(new Gone('it did not answer in time'));
  }

  fail(error) {
    this.link.close();
    this.settle();
    this.reject(error);
  }

  settle() {
    this.link.watcher = undefined;
    this.link.alarm.delete(this);
    this.signal?.removeEventListener('abort', this.aborted);
  }
}

/** One connection, used by one call at a time. */
export class Link {
  reader = new Reader();
  /** Whether it has carried an answer, so that the server may have closed it since. */
  used = false;
  /** Whether the end of a stream has to be read before the next answer. */
  streams = false;
  gone = false;
  /** Its `came()` is called when more has come, or the connection has ended. */
  watcher = undefined;

  /** Connects; the socket says when it is done. */
  constructor(address, alarm) {
    this.alarm = alarm;
    const came = (length, data) => {
      this.reader.feed(data, length);
      this.watcher?.came();
      return true;
    };
    if (address.tls) {
      this.socket = connectTls(address).on('data', (data) => came(data.length, data));
    } else {
      // Without the machinery of streams, and without a buffer for each answer.
      this.socket = connect({ ...address, onread: { buffer: BUFFER, callback: came } });
    }
    this.socket.on('error', () => {});
    const ended = () => {
      if (this.gone) return;
      this.gone = true;
      this.watcher?.came();
    };
    this.socket.on('end', ended);
    this.socket.on('close', ended);
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
  until(read, limit, signal) {
    return new Promise((resolve, reject) => {
      const wait = new Wait(this, read, resolve, reject, signal);
      this.watcher = wait;
      if (signal !== undefined) {
        if (signal.aborted) return wait.aborted();
        signal.addEventListener('abort', wait.aborted);
      }
      if (limit !== undefined) this.alarm.set(wait, now() + limit, 0);
      wait.came();
    });
  }

  /** Sends requests in one message, and reads their answers. */
  async exchange(text, count, limit, signal) {
    this.send(text);
    const answers = [];
    const read = (reader) => {
      for (;;) {
        const answer = reader.body();
        if (answer === undefined) return undefined;
        answers.push(answer);
        if (answers.length === count) return answers;
      }
    };
    await this.until(read, limit, signal);
    this.used = true;
    return answers;
  }

  /** Ends the hold whose stream this is. Rejects with what came of it unless it was released. */
  end(text) {
    this.send(text);
    return this.until(ended, PATIENCE);
  }

  close() {
    this.gone = true;
    this.socket.destroy();
  }
}

/** Whether the reader has read the end of a hold. */
function ended(reader) {
  if (reader.saysReleased() || released(reader.lines())) return true;
  if (reader.ended) throw new Gone('the stream ended without a word');
  return undefined;
}

/** The server, and the connections to it that nobody uses at the moment. */
export class Links {
  #idle = [];
  #open = new Set();
  /** The holds that are confirmed together. */
  #due = [];
  closed = false;
  alarm = new Alarm();

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
    const link = new Link(address, this.alarm);
    const { socket } = link;
    await new Promise((resolve, reject) => {
      socket.setTimeout(PATIENCE, () => socket.destroy(new Error('timed out')));
      socket.once('error', (cause) => {
        const where = this.place.socket ?? 'its own socket';
        reject(new Unavailable(`the tidelock server at ${where} cannot be reached: ${cause.message}`, { cause }));
      });
      socket.once(address.tls ? 'secureConnect' : 'connect', () => {
        socket.setTimeout(0);
        resolve();
      });
    });
    this.#open.add(link);
    socket.once('close', () => this.#open.delete(link));
    return link;
  }

  put(link) {
    if (this.closed || link.gone || !link.reader.keeps) return link.close();
    link.socket.unref();
    this.#idle.push(link);
  }

  /** Confirms a hold, in one message with others that are due now. Resolves with the answer. */
  confirm(hold, limit) {
    return new Promise((resolve, reject) => {
      this.#due.push({ hold, limit, resolve, reject });
      if (this.#due.length === 1) setImmediate(() => this.#confirmDue());
    });
  }

  #confirmDue() {
    const due = this.#due.splice(0);
    for (let at = 0; at < due.length; at += BATCH) {
      const batch = due.slice(at, at + BATCH);
      const text = batch.map(({ hold }) => request('POST', `/v1/holds/${hold}`, {}, this.place.token)).join('');
      const limit = Math.max(1, Math.min(...batch.map((each) => each.limit)));
      this.#exchange(text, batch.length, { limit }).then(
        (answers) => batch.forEach(({ resolve }, index) => resolve(answers[index])),
        (error) => batch.forEach(({ reject }) => reject(error)),
      );
    }
  }

  /** Sends a request and reads its answer. `again`: it may be sent twice if a kept connection was closed. */
  async ask(method, path, body, options) {
    return (await this.#exchange(request(method, path, body, this.place.token), 1, options))[0];
  }

  async #exchange(text, count, { again = true, limit = PATIENCE, signal } = {}) {
    for (;;) {
      const link = this.kept() ?? (await this.fresh());
      const stale = link.used;
      try {
        const answers = await link.exchange(text, count, limit, signal);
        this.put(link);
        return answers;
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
