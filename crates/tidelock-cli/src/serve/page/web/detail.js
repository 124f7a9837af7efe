// One lock: its line, its claims, and what happened to it.

import { drawLine, drawTimeline } from "./drawing.js";
import { ask } from "./stream.js";
import { drain, leaseBar } from "./table.js";
import { count, el, set, span, timeOfDay, told, visible } from "./text.js";

/** How many events are listed. */
const LISTED = 40;

export class Detail {
  constructor({ panel, now, lock, mayBreak, onBreak, onClose }) {
    Object.assign(this, { panel, now, lock, mayBreak, onBreak, onClose });
    this.name = null;
  }

  /** Shows a lock, and what happened to it so far. */
  async open(name) {
    this.name = name;
    this.history = { events: [], gaps: [], since: null };
    this.panel.hidden = false;
    this.draw();
    this.panel.scrollTop = 0;
    await this.recall();
  }

  /** Reads the history again, as after a time without connection. */
  async recall() {
    const { name } = this;
    if (name === null) return;
    const history = await ask(`/ui/history?name=${encodeURIComponent(name)}`).catch(() => null);
    if (history && this.name === name) {
      this.history = history;
      this.draw();
    }
  }

  close() {
    this.name = null;
    this.panel.hidden = true;
    this.panel.replaceChildren();
  }

  /** Takes in what is new. */
  apply(news) {
    if (this.name === null) return;
    const events = news.events.filter((event) => event.name === this.name);
    this.history.events.push(...events);
    const isConcerned = news.all || events.length > 0 || news.gone.includes(this.name) || news.rows.some((row) => row.name === this.name);
    if (isConcerned) this.draw();
  }

  draw() {
    const { panel, name } = this;
    const lock = this.lock(name) ?? { name, holders: [], waiters: [], holding: 0, waiting: 0 };
    const focused = panel.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const line = drawLine(lock);
    const claims = [...lock.holders.map((claim) => this.claim(claim, lock, true)), ...lock.waiters.map((claim) => this.claim(claim, lock, false))];
    this.ticks = [line.tick, ...claims.map((claim) => claim.tick)];
    this.timeline = el("div", { class: "timeline" });
    panel.replaceChildren(
      el("header", {}, el("h2", {}, told(name)),
        el("button", { type: "button", class: "close", "aria-label": "Close", text: "×", "data-key": "close", click: () => this.onClose() })),
      el("p", { class: "facts", text: facts(lock) }),
      lock.holding + lock.waiting > 0 ? el("div", { class: "queue", tabindex: "0", "aria-label": "The line" }, line.drawing) : null,
      el("ul", { class: "claims" }, ...claims.map((claim) => claim.item)),
      el("h3", { text: "The last minutes" }), this.timeline,
      el("h3", { text: this.history.since ? `What happened since ${timeOfDay(this.history.since)}` : "What happened" }),
      this.eventList());
    if (focused) panel.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    this.drawn = 0;
    this.tick();
  }

  claim(claim, lock, holds) {
    const lease = leaseBar();
    const age = el("span", { class: "age" });
    const what = [
      holds ? (claim.token ? `token ${claim.token}` : "holds") : "waits",
      claim.share !== "exclusive" && visible(claim.share),
      claim.owner && `owner ${visible(claim.owner)}`,
      claim.advertised && `at ${visible(claim.advertised)}`,
      claim.foreign && `a holder of ${claim.foreign}`,
    ].filter(Boolean).join(" · ");
    const item = el("li", { class: holds ? "holds" : "waits" },
      told(claim.label, { class: "who", title: visible(claim.label) }), age, lease,
      el("span", { class: "what", text: what, title: `claim ${claim.claim}` }),
      this.mayBreak() ? el("button", {
        type: "button", class: "button danger", text: "Break…", "data-key": `break ${claim.claim}`,
        click: () => this.onBreak({ lock, claim, holds }),
      }) : null);
    const tick = (now) => {
      set(age, span(now - claim.since));
      drain(lease, claim, now);
    };
    return { item, tick };
  }

  eventList() {
    const events = this.history.events.slice(-LISTED).reverse();
    if (events.length === 0) return el("p", { class: "quiet", text: "Nothing was seen to happen yet." });
    return el("ul", { class: "events" }, ...events.map((event) => el("li", {},
      el("time", { text: timeOfDay(event.at_ms) }),
      el("span", { class: ["lost", "evicted", "expired"].includes(event.event) ? "bad" : "", text: event.event.replace("_", " ") }),
      el("span", { class: "text" }, told(event.label), told(about(event))))));
  }

  /** Lets time pass. */
  tick() {
    if (this.name === null) return;
    const now = this.now();
    this.ticks.forEach((tick) => tick(now));
    // A timeline moves by less than a pixel in a second.
    if (now - this.drawn >= 1000 || this.drawn > now) {
      this.drawn = now;
      this.timeline.replaceChildren(drawTimeline(this.lock(this.name), this.history, now));
    }
  }
}

function facts(lock) {
  if (lock.holding + lock.waiting === 0) return "Free: nobody holds it or waits for it.";
  const kind = lock.capacity === "readers" ? "readers and writers" : lock.capacity ?? "one holder";
  return [kind, count(lock.holding, "holds", "hold"), count(lock.waiting, "waits", "wait")].join(" · ");
}

function about(event) {
  const parts = [];
  if (event.event === "granted" && event.token) parts.push(`token ${event.token}`);
  if (event.waited_ms !== undefined) parts.push(`waited ${span(event.waited_ms)}`);
  if (event.held_ms !== undefined) parts.push(`held ${span(event.held_ms)}`);
  if (event.left_ms !== undefined) parts.push(`${span(event.left_ms)} were left`);
  if (event.reason) parts.push(`“${event.reason}”`);
  return parts.length ? ` · ${parts.join(" · ")}` : "";
}
