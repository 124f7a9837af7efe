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
    this.build();
    this.draw();
    this.panel.hidden = false;
    this.panel.scrollTop = 0;
    await this.recall();
  }

  /** The parts stay while their contents change, so that nothing is lost that somebody points at. */
  build() {
    this.facts = el("p", { class: "facts" });
    this.queue = el("div", { class: "queue", tabindex: "0", "aria-label": "The line" });
    this.timeline = el("div", { class: "timeline" });
    this.list = el("ul", { class: "claims" });
    this.more = el("p", { class: "quiet" });
    this.since = el("h3");
    this.events = el("ul", { class: "events" });
    this.none = el("p", { class: "quiet", text: "Nothing was seen to happen yet." });
    this.claims = new Map();
    this.panel.replaceChildren(
      el("header", {}, el("h2", {}, told(this.name)),
        el("button", { type: "button", class: "close", "aria-label": "Close", text: "×", click: () => this.onClose() })),
      this.facts, this.queue,
      el("h3", { text: "The last minutes" }), this.timeline,
      el("h3", { text: "In line" }), this.list, this.more,
      this.since, this.events, this.none);
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
    const lock = this.lock(this.name) ?? { name: this.name, holders: [], waiters: [], holding: 0, waiting: 0 };
    set(this.facts, facts(lock));
    this.line = drawLine(lock);
    this.queue.hidden = lock.holding + lock.waiting === 0;
    this.queue.replaceChildren(this.line.drawing);
    this.drawClaims(lock);
    const more = lock.holding + lock.waiting - this.claims.size;
    this.more.hidden = more <= 0;
    set(this.more, `${more} more`);
    set(this.since, this.history.since ? `What happened since ${timeOfDay(this.history.since)}` : "What happened");
    this.drawEvents();
    this.drawn = 0;
    this.tick();
  }

  drawClaims(lock) {
    const claims = [...lock.holders.map((claim) => [claim, true]), ...lock.waiters.map((claim) => [claim, false])];
    const before = this.claims;
    this.claims = new Map();
    claims.forEach(([claim, holds], index) => {
      const shown = before.get(claim.claim) ?? new Claim((what) => this.onBreak(what));
      this.claims.set(claim.claim, shown);
      before.delete(claim.claim);
      shown.show(lock, claim, holds, this.mayBreak());
      // An element that is moved loses the focus, so only what is out of order is.
      if (this.list.children[index] !== shown.item) this.list.insertBefore(shown.item, this.list.children[index] ?? null);
    });
    for (const gone of before.values()) gone.item.remove();
  }

  drawEvents() {
    const events = this.history.events.slice(-LISTED).reverse();
    this.none.hidden = events.length > 0;
    this.events.replaceChildren(...events.map((event) => el("li", {},
      el("time", { text: timeOfDay(event.at_ms) }),
      el("span", { class: ["lost", "evicted", "expired"].includes(event.event) ? "bad" : "", text: event.event.replace("_", " ") }),
      el("span", { class: "text" }, told(event.label), told(about(event))))));
  }

  /** Lets time pass. */
  tick() {
    if (this.name === null) return;
    const now = this.now();
    this.line.tick(now);
    for (const claim of this.claims.values()) claim.tick(now);
    // A timeline moves by less than a pixel in a second.
    if (now - this.drawn >= 1000 || this.drawn > now) {
      this.drawn = now;
      this.timeline.replaceChildren(drawTimeline(this.lock(this.name), this.history, now));
    }
  }
}

/** A claim in the list. */
class Claim {
  constructor(onBreak) {
    this.who = el("span", { class: "who" });
    this.age = el("span", { class: "age" });
    this.lease = leaseBar();
    this.what = el("span", { class: "what" });
    this.button = el("button", { type: "button", class: "button danger", text: "Break…", click: () => onBreak(this) });
    this.item = el("li", {}, this.who, this.age, this.lease, this.what, this.button);
  }

  show(lock, claim, holds, mayBreak) {
    Object.assign(this, { lock, claim, holds });
    const what = [
      holds ? (claim.token ? `token ${claim.token}` : "holds") : "waits",
      claim.share !== "exclusive" && visible(claim.share),
      claim.owner && `owner ${visible(claim.owner)}`,
      claim.advertised && `at ${visible(claim.advertised)}`,
      claim.foreign && `a holder of ${claim.foreign}`,
    ].filter(Boolean).join(" · ");
    this.item.className = holds ? "holds" : "waits";
    if (this.who.title !== visible(claim.label)) {
      this.who.replaceChildren(told(claim.label));
      this.who.title = visible(claim.label);
    }
    set(this.what, what);
    this.what.title = `claim ${claim.claim}`;
    this.button.hidden = !mayBreak;
  }

  tick(now) {
    set(this.age, span(now - this.claim.since));
    drain(this.lease, this.claim, now);
  }
}

function facts(lock) {
  if (lock.holding + lock.waiting === 0) return "Free: nobody holds it or waits for it.";
  const kind = lock.capacity === "readers" ? "readers and writers" : lock.capacity ?? "exclusive";
  return [kind, count(lock.holding, "holder", "holders"), `${lock.waiting.toLocaleString("en")} waiting`].join(" · ");
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
