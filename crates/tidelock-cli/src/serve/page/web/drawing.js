// Drawings of one lock: the people in its line, and what happened in the last minutes.

import { span, svg, timeOfDay, visible } from "./text.js";

const PLACE = 92;
const MOST_PEOPLE = 14;
const RING = 17;
const AROUND = 2 * Math.PI * RING;

/** Text that fits a width of about this many characters. */
function short(text, most) {
  const chars = [...visible(text)];
  return chars.length <= most ? chars.join("") : `${chars.slice(0, most - 1).join("")}…`;
}

/** The line as people: holders in front, behind the gate those who wait. Returns the drawing and how time passes. */
export function drawLine(lock) {
  const people = [...lock.holders.map((claim) => ({ claim, holds: true })), ...lock.waiters.map((claim) => ({ claim, holds: false }))];
  const shown = people.slice(0, MOST_PEOPLE);
  const rest = lock.holding + lock.waiting - shown.length;
  const holding = shown.filter((person) => person.holds).length;
  const width = PLACE * shown.length + (rest > 0 ? 70 : 0) + 8;
  const drawing = svg("svg", { width, height: 118, viewBox: `0 0 ${width} 118`, role: "img" });
  drawing.setAttribute("aria-label", `${lock.holding} hold, ${lock.waiting} wait`);
  if (holding > 0 && holding < shown.length) {
    const x = holding * PLACE + 4;
    drawing.append(svg("line", { class: "gate", x1: x, x2: x, y1: 10, y2: 84 }));
  }
  const ticks = shown.map(({ claim, holds }, index) => {
    const ring = svg("circle", { class: "ring", r: RING, transform: "rotate(-90)", "stroke-dasharray": `${AROUND} ${AROUND}` });
    const age = svg("text", { class: "age", y: 106 });
    const label = svg("text", { y: 90, text: short(claim.label, 12) });
    drawing.append(svg("g", { class: `person ${holds ? "holds" : "waits"}`, transform: `translate(${index * PLACE + PLACE / 2 + 4} 0)` },
      svg("title", { text: visible(claim.label) }),
      svg("path", { class: "body", d: "M-17 72 v-8 a17 17 0 0 1 34 0 v8 z" }),
      svg("g", { transform: "translate(0 26)" }, svg("circle", { class: "track", r: RING }), ring, svg("circle", { class: "body", r: 11 })),
      label, age));
    return (now) => {
      const part = claim.forever ? 1 : Math.min(1, Math.max(0, (claim.until - now) / Math.max(1, claim.lease)));
      ring.setAttribute("stroke-dashoffset", (AROUND * (1 - part)).toFixed(1));
      const text = `${holds ? "" : `${index - holding + 1}. `}${span(now - claim.since)}`;
      if (age.textContent !== text) age.textContent = text;
    };
  });
  if (rest > 0) drawing.append(svg("text", { class: "more", x: width - 36, y: 50, text: `+${rest} more` }));
  return { drawing, tick: (now) => ticks.forEach((tick) => tick(now)) };
}

const WIDTH = 460;
const LANE = 30;
const MOST_LANES = 12;

/** What became of each claim: when it stood in line, held and ended. */
export function lives(lock, events) {
  const claims = new Map();
  const life = (id, label) => {
    if (!claims.has(id)) claims.set(id, { id, label });
    return claims.get(id);
  };
  for (const event of events) {
    const it = life(event.claim, event.label);
    if (event.event === "queued") it.queued = event.at_ms;
    else if (event.event === "granted") {
      it.granted = event.at_ms;
      it.token = event.token;
      if (event.waited_ms !== undefined) it.queued ??= event.at_ms - event.waited_ms;
    } else if (event.event !== "renewed_late") {
      it.end = event.at_ms;
      it.after = event.after_ms;
      it.how = event.event;
      it.reason = event.reason;
      if (event.held_ms !== undefined) it.granted ??= event.at_ms - event.held_ms;
      it.token ??= event.token;
    }
  }
  for (const holder of lock?.holders ?? []) {
    const it = life(holder.claim, holder.label);
    it.granted ??= holder.since;
    it.token = holder.token;
    it.end = undefined;
  }
  for (const waiter of lock?.waiters ?? []) life(waiter.claim, waiter.label).queued ??= waiter.since;
  const start = (it) => it.queued ?? it.granted ?? it.end ?? 0;
  return [...claims.values()].sort((one, two) => start(one) - start(two));
}

const ENDED_BADLY = new Set(["expired", "evicted", "lost"]);

/** Holds as bars with their tokens, the waits before them, and losses marked. */
export function drawTimeline(lock, history, now) {
  const all = lives(lock, history.events);
  const longest = Math.max(...all.map((it) => now - (it.queued ?? it.granted ?? now)), 0);
  const minutes = [0.5, 1, 2, 5, 10].find((minutes) => longest <= minutes * 60_000) ?? 10;
  const from = now - minutes * 60_000;
  const lanes = all.filter((it) => (it.end ?? now) >= from).slice(-MOST_LANES);
  const height = Math.max(1, lanes.length) * LANE + 22;
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `The last ${minutes} minutes` });
  const x = (moment) => Math.min(WIDTH, Math.max(0, ((moment - from) / (now - from)) * WIDTH));
  for (const gap of history.gaps ?? []) {
    const [left, right] = [x(gap.from), x(gap.to ?? now)];
    if (right > left) {
      drawing.append(svg("rect", { class: "gap", x: left, width: right - left, y: 0, height: height - 18 },
        svg("title", { text: `not seen: ${visible(gap.why)}` })));
    }
  }
  for (let step = 0; step <= 4; step += 1) {
    const at = from + ((now - from) * step) / 4;
    const anchor = step === 0 ? "start" : step === 4 ? "end" : "middle";
    drawing.append(svg("line", { class: "axis", x1: x(at), x2: x(at), y1: 0, y2: height - 18 }),
      svg("text", { x: x(at), y: height - 5, "text-anchor": anchor, text: step === 4 ? "now" : timeOfDay(at) }));
  }
  lanes.forEach((it, index) => drawing.append(lane(it, index * LANE, x, now, from)));
  return drawing;
}

function lane(it, y, x, now, from) {
  const mid = y + 19;
  const group = svg("g", {}, svg("title", { text: [visible(it.label), it.how, it.reason && visible(it.reason)].filter(Boolean).join(" · ") }));
  const begin = Math.max(from, it.queued ?? it.granted ?? it.end);
  if (it.queued !== undefined) {
    group.append(svg("line", { class: "wait", x1: x(it.queued), x2: x(it.granted ?? it.end ?? now), y1: mid, y2: mid }));
  }
  let right = x(it.end ?? now);
  if (it.granted !== undefined) {
    const left = x(it.granted);
    // Between the last look that saw it and the first that did not, it ended.
    const sure = it.after === undefined ? right : Math.max(left, x(it.after));
    group.append(svg("rect", { class: "hold", x: left, y: mid - 6, width: Math.max(2, sure - left), height: 12, rx: 3 }));
    if (right > sure) group.append(svg("rect", { class: "unsure", x: sure, y: mid - 6, width: right - sure, height: 12, rx: 3 }));
    right = Math.max(right, left + 2);
    const token = String(it.token ?? "");
    if (token && right - left > token.length * 6.4 + 8) {
      group.append(svg("text", { class: "token", x: left + 5, y: mid + 3.6, text: token }));
    }
  }
  if (ENDED_BADLY.has(it.how)) {
    group.append(svg("path", { class: "cross", d: `M${right - 4} ${mid - 4} l8 8 m0 -8 l-8 8` }));
  }
  const isBad = ENDED_BADLY.has(it.how);
  const why = isBad ? svg("tspan", { class: "why", dx: 5, text: short(it.reason ? `${it.how}: ${it.reason}` : it.how, 40) }) : "";
  const nearEnd = x(begin) > WIDTH * (isBad ? 0.35 : 0.7);
  group.append(svg("text", { class: "who", x: nearEnd ? WIDTH : x(begin), y: y + 10, "text-anchor": nearEnd ? "end" : "start" },
    svg("tspan", { text: short(it.label, isBad ? 20 : 30) }), why));
  return group;
}
