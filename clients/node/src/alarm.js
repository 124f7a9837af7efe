// One timer for all that may become due: of most of it nothing ever does, and a timer for each would cost more.
import { now } from './clock.js';

/**
 * Items have `at`, when they are due, `early`, by how much earlier they may be called together with others, and
 * `ring()`. Times are milliseconds.
 */
export class Alarm {
  #items = new Set();
  #rings = Number.POSITIVE_INFINITY;
  #timer;

  set(item, at, early) {
    item.at = at;
    item.early = early;
    this.#items.add(item);
    if (at < this.#rings) this.#arm(at);
  }

  delete(item) {
    // The timer stays: the next item is usually due later.
    this.#items.delete(item);
  }

  #arm(at) {
    clearTimeout(this.#timer);
    this.#rings = at;
    // Timers take up to 2^31 - 1 milliseconds: one that rings too early finds nothing to do.
    this.#timer = setTimeout(() => this.#ring(), Math.min(Math.max(1, at - now()), 2 ** 31 - 1));
    // What keeps the program alive is the connection that is waited for.
    this.#timer.unref();
  }

  #ring() {
    this.#rings = Number.POSITIVE_INFINITY;
    const time = now();
    const due = [...this.#items].filter((item) => item.at - item.early <= time);
    for (const item of due) this.#items.delete(item);
    // Before they are called, which may set them again.
    let next = Number.POSITIVE_INFINITY;
    for (const item of this.#items) next = Math.min(next, item.at);
    if (next !== Number.POSITIVE_INFINITY) this.#arm(next);
    for (const item of due) item.ring();
  }
}
