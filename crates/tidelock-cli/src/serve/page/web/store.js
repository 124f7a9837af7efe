// The store: how it answers, what it can do, and what doctor says of it.

import { brief, count, el, span, timeOfDay, told } from "./text.js";

const TOKENS = {
  "time-assisted": "grow with the store's data or its clock", process: "grow within one process",
};

/** Shows the store. `known` does not change while the server runs; `health` comes with the news. */
export function drawStore(view, known, health, now) {
  const can = known.abilities;
  const yes = (flag) => (flag ? "yes" : "no");
  const look = health?.look;
  const state = !health?.since ? "not asked yet" : health.error ? `not reachable since ${timeOfDay(health.since)}` : `answers since ${timeOfDay(health.since)}`;
  const problems = known.problems.map((text) => el("li", { class: "problem", text }));
  view.replaceChildren(el("div", { class: "cards" },
    card("Connection",
      ["Store", told(can.store ?? "")], ["URL", told(known.url, { class: "mono" })], ["State", state],
      health?.error ? ["Error", told(health.error, { class: "problem" })] : null,
      ["Failed looks", String(health?.errors ?? 0)],
      ["Changes", health?.tells ? "told by the store" : "found by looking"],
      health?.jumps ? ["Clock jumps", el("span", { class: "problem", text: `${health.jumps}, last at ${timeOfDay(health.jumped)}` })] : null,
      ["Server", `tidelock ${known.version}`],
      ["This page", known.may_break ? "may break locks" : "only shows"]),
    card("How long it takes",
      ["Round trip", `${brief(health?.round_trip_us)} median`],
      ["Slowest", `${brief(health?.slowest_us)} of the last 64`],
      ["Look at all locks", look ? `${brief(look.took_us)}` : "–"],
      ["Repeated", look ? `every ${brief(look.every_ms * 1000)}` : "–"],
      ["Last", look ? `${span(now - look.at)} ago` : "–"]),
    card("What it can do",
      ["Tokens", TOKENS[can.token] ?? String(can.token)], ["Wakes waiters", yes(can.push)],
      ["First come, first served", yes(can.fair)], ["Re-entry", yes(can.reentry)], ["Permits", yes(can.permits)],
      can.min_ttl_ms ? ["Shortest ttl", brief(can.min_ttl_ms * 1000)] : null),
    el("section", { class: "wide" }, el("h2", { text: "What doctor says" }),
      problems.length ? null : el("p", { class: "good", text: "No problems found." }),
      el("ul", {}, ...problems, ...known.notes.map((text) => el("li", { text })))),
  ));
  view.setAttribute("aria-label", count(problems.length, "problem", "problems"));
}

function card(title, ...facts) {
  const pairs = facts.filter(Boolean).flatMap(([name, value]) => {
    const shown = typeof value === "string" ? el("dd", { text: value }) : el("dd", {}, value);
    return [el("dt", { text: name }), shown];
  });
  return el("section", {}, el("h2", { text: title }), el("dl", {}, ...pairs));
}
