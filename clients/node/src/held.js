// A lock that is held: until it is released, or lost.
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
  #timer;
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
    link.came = () => this.#came();
    this.#later(window.ttl / 3);
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
    clearTimeout(this.#timer);
    this.#link.came = undefined;
  }

  #later(millis) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#tick(), Math.max(1, millis));
    // What keeps the program alive is the stream.
    this.#timer.unref();
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
    let answer;
    try {
      answer = await this.#links.ask('POST', `/v1/holds/${this.#window.hold}`, {}, { limit });
    } catch {
      if (!this.#window.ended) this.#later(Math.min(RETRY, this.#window.remaining()));
      return;
    }
    if (this.#window.ended) return;
    this.#window.confirmed(answer, asked);
    if (this.#window.lost) this.#stop();
    else this.#later(Math.min(this.#window.ttl / 3, this.#window.remaining()));
  }

  /**
   * Releases the lock; resolves when the store has confirmed that. Rejects with `Lost` if it was lost before, and with
   * `Unavailable` if the server did not answer: the lock is then free as soon as the server or the store notices.
   */
  async release() {
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
    // Its end comes with the last line, or with the next answer.
    link.streams = link.used = true;
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
