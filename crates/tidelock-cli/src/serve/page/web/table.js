// The list: only the rows that can be seen are drawn, and they are reused.

import { count, el, set, span, told, visible } from "./text.js";

/** Rows beyond the edges, so that a scroll finds them drawn. */
const SPARE = 6;

export class Table {
  constructor({ scroller, rows, now, onOpen, onToggle, onVisible }) {
    Object.assign(this, { scroller, rows, now, onOpen, onToggle, onVisible });
    this.items = [];
    this.active = null;
    this.pool = new Map();
    this.narrow = matchMedia("(max-width: 720px)");
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    scroller.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(scroller);
    rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(row.item, true);
    });
  }

  /** What the headline covers. */
  get top() {
    return this.narrow.matches ? 0 : 40;
  }

  get height() {
    return this.narrow.matches ? 64 : 44;
  }

  /** Shows these rows. The one that was active stays so, wherever it is now. */
  show(items) {
    this.items = items;
    this.draw();
  }

  key(item) {
    return item.group === undefined ? `lock ${item.name}` : `group ${item.group}`;
  }

  position() {
    return this.items.findIndex((item) => this.key(item) === this.active);
  }

  /** Makes a lock the active one, and scrolls to it if it is in the list. */
  activate(name) {
    this.active = `lock ${name}`;
    const at = this.position();
    if (at >= 0) this.reveal(at);
    this.draw();
  }

  choose(item, isOpened) {
    this.active = this.key(item);
    this.draw();
    if (!isOpened) return;
    if (item.group === undefined) this.onOpen(item.name);
    else this.onToggle(item.group);
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || this.items.length === 0) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 1);
    const at = this.position();
    const steps = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: Infinity };
    if (event.key in steps) {
      const next = Math.min(Math.max(0, steps[event.key]), this.items.length - 1);
      this.active = this.key(this.items[next]);
      this.reveal(next);
      this.draw();
    } else if ((event.key === "Enter" || event.key === " ") && at >= 0) {
      this.choose(this.items[at], true);
    } else {
      return;
    }
    event.preventDefault();
  }

  reveal(index) {
    const { scroller, height } = this;
    const top = index * height;
    const room = scroller.clientHeight - this.top;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + height > scroller.scrollTop + room) scroller.scrollTop = top + height - room;
  }

  /** Draws the rows that can be seen. */
  draw() {
    const { scroller, rows, items, height } = this;
    rows.style.height = `${items.length * height}px`;
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - SPARE);
    const last = Math.min(items.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / height) + SPARE);
    const drawn = new Set();
    for (let index = first; index < last; index += 1) {
      const item = items[index];
      const key = this.key(item);
      drawn.add(key);
      let row = this.pool.get(key);
      if (!row) {
        row = item.group === undefined ? lockRow() : groupRow();
        this.pool.set(key, row);
        rows.append(row);
      }
      if (row.item !== item) {
        row.item = item;
        (item.group === undefined ? fillLock : fillGroup)(row, item);
        tick(row, this.now());
      }
      row.style.transform = `translateY(${index * height}px)`;
      row.id = `row-${index}`;
      row.setAttribute("aria-setsize", items.length);
      row.setAttribute("aria-posinset", index + 1);
      const isActive = key === this.active;
      row.classList.toggle("is-active", isActive);
      row.setAttribute("aria-selected", isActive);
      if (isActive) scroller.setAttribute("aria-activedescendant", row.id);
    }
    for (const [key, row] of this.pool) {
      if (!drawn.has(key)) {
        row.remove();
        this.pool.delete(key);
      }
    }
    this.onVisible(items.slice(first, last).filter((item) => item.group === undefined).map((item) => item.name));
  }

  /** Lets time pass in the rows that can be seen. */
  tick() {
    const now = this.now();
    for (const row of this.pool.values()) tick(row, now);
  }
}

function lockRow() {
  return el("div", { class: "row", role: "option" },
    el("span", { class: "name" }), el("span", { class: "holder" }), el("span", { class: "held number" }),
    leaseBar(), el("span", { class: "waiting number" }), el("span", { class: "token number" }));
}

/** A bar that drains. */
export function leaseBar() {
  return el("span", { class: "lease" }, el("span", { class: "bar" }, el("i")), el("span", { class: "left" }));
}

function fillLock(row, lock) {
  const [name, holder, , , waiting, token] = row.children;
  name.replaceChildren(told(lock.name));
  name.title = visible(lock.name);
  if (lock.holding === 0) {
    holder.replaceChildren(el("span", { class: "nobody", text: "nobody" }));
  } else {
    const more = lock.holding - 1;
    holder.replaceChildren(told(lock.holders[0].label), el("span", { class: "more", text: more ? ` +${more}` : "" }));
  }
  holder.title = lock.holders.map((person) => visible(person.label)).join(", ");
  // Where there is no room for a column of its own.
  if (lock.waiting) holder.dataset.wait = ` · ${count(lock.waiting, "waits", "wait")}`;
  else delete holder.dataset.wait;
  set(waiting, lock.waiting ? lock.waiting.toLocaleString("en") : "–");
  waiting.dataset.some = lock.waiting > 0;
  const newest = lock.holders[0]?.token ?? "–";
  set(token, newest);
  token.title = newest;
  row.setAttribute("aria-label", `${visible(lock.name)}, held by ${holder.title || "nobody"}, ${count(lock.waiting, "waits", "wait")}`);
}

function groupRow() {
  return el("div", { class: "row group", role: "option" }, el("span", { class: "name" }), el("span", { class: "sum" }));
}

function fillGroup(row, group) {
  const [name, sum] = row.children;
  name.replaceChildren(told(group.group || "no prefix"));
  set(sum, `${count(group.size, "lock", "locks")}${group.waiting ? ` · ${count(group.waiting, "waits", "wait")}` : ""}`);
  row.setAttribute("aria-expanded", group.isOpen);
}

function tick(row, now) {
  const lock = row.item;
  if (lock.group !== undefined) return;
  const [, , held, lease] = row.children;
  set(held, lock.holding ? span(now - lock.since) : "–");
  // Of several holders, the one that expires first.
  const first = lock.holders.find((holder) => holder.until === lock.until);
  drain(lease, first, now);
}

/** Shows how much is left of a lease. */
export function drain(lease, claim, now) {
  const [bar, left] = lease.children;
  const rest = claim ? Math.max(0, claim.until - now) : 0;
  const part = claim ? Math.min(1, rest / Math.max(1, claim.lease)) : 0;
  bar.firstChild.style.transform = `scaleX(${part.toFixed(3)})`;
  const level = claim?.forever ? "" : !claim ? "" : rest === 0 ? "out" : part < 1 / 3 ? "low" : "";
  if (lease.dataset.level !== level) lease.dataset.level = level;
  set(left, !claim ? "" : claim.forever ? "never" : rest === 0 ? "expired" : span(rest));
}
