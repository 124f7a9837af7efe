// A lock that is held: until it is released, or lost.
import { now } from './clock.js';
import { fromAnswer, Lost, Unavailable } from './errors.js';
import { Gone } from './link.js';
import { question } from './window.js';
import { endElsewhere, ENDINGS } from './wire.js';

// Node 18 before 18.18 does not have it.
Symbol.asyncDispose ??= Symbol('Symbol.asyncDispose');

/** How soon a confirmation that got no answer is sent again, in milliseconds. */
const RETRY = 50;

export class Held {
  #links;
  #window;
  #link;
  #shown;
  #opened;
  #watch;
  #controller;

  /** `opened`: whether it can be ended on its own connection. */
  constructor(links, window, link, shown, opened) {
    this.#links = links;
    this.#opened = opened;
    this.#window = window;
    this.#link = link;
    this.#shown = shown;
    this.token = window.token;
    this.tokens = window.tokens;
    // What the connection and the alarm call.
    this.#watch = { at: 0, early: 0, came: () => this.#came(), ring: () => this.#tick() };
    link.watcher = this.#watch;
    this.#confirmLater();
  }

  /** An AbortSignal that fires when the lock is lost, with the `Lost` error as its reason. */
  get signal() {
    // Made when it is asked for: most holds are shorter than it takes to look at one.
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#window.lost) this.#controller.abort(this.#window.lost);
    }
    return this.#controller.signal;
  }

  /** Why the lock was lost, if it was. */
  get lost() {
    return this.#window.lost;
  }

  /** What the server said when it granted the lock. */
  get details() {
    return this.#window.details;
  }

  isHeld() {
    this.#expire();
    return !this.#window.ended;
  }

  /** For how many milliseconds the lock is held even if the server and the store are gone. */
  remaining() {
    return this.#window.remaining();
  }

  /** Throws `Lost` unless the lock is held. */
  check() {
    if (!this.isHeld()) throw this.lost ?? new Lost(`${this.#shown} is not held any more`);
  }

  #came() {
    const reader = this.#link.reader;
    let ended;
    try {
      for (const line of reader.lines()) this.#window.read(line);
      ended = reader.ended;
    } catch {
      ended = true;
    }
    if (ended || this.#link.gone) this.#window.lose('the connection to the server ended, and with it the hold');
    if (this.#window.lost) this.#stop();
  }

  /** The hold has ended because it was lost. */
  #stop() {
    this.#forget();
    this.#link.close();
    this.#controller?.abort(this.#window.lost);
  }

  #forget() {
    this.#links.alarm.delete(this.#watch);
    this.#link.watcher = undefined;
  }

  #later(millis) {
    this.#links.alarm.set(this.#watch, now() + millis, 0);
  }

  /** Confirmations may be early, so that those of many holds come together. */
  #confirmLater() {
    const { ttl } = this.#window;
    this.#links.alarm.set(this.#watch, now() + ttl / 3, ttl / 24);
  }

  #expire() {
    if (this.#window.ended || this.#window.remaining() > 0) return false;
    this.#window.lose(`the server did not confirm ${this.#shown} in time: it may be held by another client now`);
    this.#stop();
    return true;
  }

  async #tick() {
    if (this.#window.ended || this.#expire()) return;
    const asked = question();
    const limit = this.#window.remaining();
    // The end of the window is noticed also while the server hangs.
    this.#later(limit);
    try {
      const answer = await this.#links.confirm(this.#window.hold, limit);
      if (this.#window.ended) return;
      this.#window.confirmed(answer, asked);
    } catch {
      if (!this.#window.ended) this.#later(Math.min(RETRY, this.#window.remaining()));
      return;
    }
    if (this.#window.lost) this.#stop();
    else if (this.#window.remaining() < this.#window.ttl / 3) this.#later(this.#window.remaining());
    else this.#confirmLater();
  }

  /**
   * Releases the lock; resolves when the store has confirmed that. Rejects with `Lost` if it was lost before, and with
   * `Unavailable` if the server did not answer: the lock is then free as soon as the server or the store notices.
   */
  release() {
    return this._finish('release');
  }

  async _finish(ending) {
    const window = this.#window;
    // The clock is not read: the server and the store know whether it is still held.
    if (window.ended) {
      if (window.lost) throw window.lost;
      return;
    }
    window.ended = true;
    this.#forget();
    const link = this.#link;
    try {
      if (this.#opened) await link.end(ENDINGS[ending]);
      else await this.#endElsewhere(ending);
    } catch (error) {
      link.close();
      if (error instanceof Lost) window.lost = error;
      if (error instanceof Gone) {
        throw new Unavailable(`the tidelock server did not answer: ${error.message}`, { cause: error });
      }
      throw error;
    }
    // The end of the stream comes with its last line, or with the next answer.
    link.streams = link.reader.status !== 0;
    link.used = true;
    this.#links.put(link);
  }

  async #endElsewhere(ending) {
    const [method, path, body] = endElsewhere(this.#window.hold, ending);
    const answer = await this.#links.ask(method, path, body, { again: false });
    if (answer.status === 200) return;
    const error = fromAnswer(answer.status, answer.body);
    throw answer.status === 404 || answer.status === 410 ? new Lost(error.message, { details: error.details }) : error;
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }
}

/** A job that runs once per period, and whose turn this is. */
export class Turn extends Held {
  #settled = false;

  /** The period that it runs for. */
  get slot() {
    return this.details.slot;
  }

  /** Records that the job has run in this period. */
  async done() {
    this.#settled = true;
    return this._finish('done');
  }

  /** Records that the job has failed, so that another client may run it. */
  async failed() {
    this.#settled = true;
    return this._finish('failed');
  }

  async [Symbol.asyncDispose]() {
    if (!this.#settled) await this.failed();
  }
}
