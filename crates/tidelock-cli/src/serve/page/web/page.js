// The page: puts its parts together.

import { Detail } from "./detail.js";
import { askBreak, askToken } from "./dialogs.js";
import { Locks } from "./locks.js";
import { drawStore } from "./store.js";
import { Stream, ask } from "./stream.js";
import { Table } from "./table.js";
import { count, set, span, timeOfDay, visible } from "./text.js";

const $ = (id) => document.getElementById(id);
const locks = new Locks();
const shown = { filter: "", sort: "name", grouped: false, collapsed: new Set() };
let known = null;
let health = null;
let since = null;
let hasNews = false;
let stream = null;

const now = () => stream?.now() ?? Date.now();
const detail = new Detail({
  panel: $("detail"), now,
  lock: (name) => locks.get(name),
  mayBreak: () => known?.may_break ?? false,
  onBreak: (what) => askBreak($("break-dialog"), what, now()),
  onClose: () => leave(),
});
const table = new Table({
  scroller: $("scroller"), rows: $("rows"), now,
  onOpen: (name) => { location.hash = `lock=${encodeURIComponent(name)}`; },
  onToggle: (prefix) => {
    if (!shown.collapsed.delete(prefix)) shown.collapsed.add(prefix);
    arrange();
  },
  onVisible: (names) => { visibleNames = names; focusSoon(); },
});

/* What is on the screen is looked at often. */
let visibleNames = [];
let focusTimer = null;
let focused = "";
function focusSoon() {
  focusTimer ??= setTimeout(() => {
    focusTimer = null;
    const names = [...new Set([...(detail.name === null ? [] : [detail.name]), ...(document.hidden ? [] : visibleNames)])].slice(0, 200);
    const body = { viewer: stream?.viewer, names };
    const text = JSON.stringify(body);
    if (body.viewer === null || body.viewer === undefined || text === focused) return;
    focused = text;
    ask("/ui/focus", body).catch(() => { focused = ""; });
  }, 150);
}

/** Shows the rows that fit, in their order. */
function arrange() {
  const { items, found } = locks.view(shown);
  table.show(items);
  const all = locks.rows.size;
  set($("count"), found === all ? count(all, "lock", "locks") : `${found.toLocaleString("en")} of ${count(all, "lock", "locks")}`);
  const empty = $("empty");
  empty.hidden = found > 0 || !hasNews;
  set(empty, all > 0 ? "No lock fits the filter." : "No lock is in use.");
}

function drawFigures() {
  const { locks: all, waiting, line, oldest } = locks.figures();
  set($("figure-locks"), hasNews ? all.toLocaleString("en") : "–");
  set($("figure-waiting"), hasNews ? waiting.toLocaleString("en") : "–");
  set($("figure-line"), hasNews ? line.toLocaleString("en") : "–");
  set($("figure-oldest"), Number.isFinite(oldest) ? span(now() - oldest) : "–");
}

function drawState() {
  const state = $("state");
  const isLive = stream?.isLive ?? false;
  const kind = !isLive ? (hasNews ? "lost" : "none") : health?.error ? "store" : "live";
  state.dataset.state = kind;
  set(state, { lost: "Disconnected", none: "Connecting", store: "Store down", live: "Live" }[kind]);
  const banner = $("banner");
  const text = kind === "lost" ? `Connection to the server lost. This is how it was at ${timeOfDay(now())}; trying again.`
    : kind === "store" ? `The store does not answer since ${timeOfDay(health.since)}: ${visible(health.error)}` : "";
  banner.hidden = text === "";
  set(banner, text);
  document.body.classList.toggle("is-stale", kind === "lost" || kind === "store");
  set($("since"), since ? `watched since ${timeOfDay(since)}` : "");
}

function drawStoreView() {
  if (!$("store-view").hidden && known) drawStore($("store-view"), known, health, now());
}

async function begin() {
  try {
    known = await ask("/ui/store");
  } catch (failure) {
    if (failure.status === 401) askToken($("sign-in"), begin);
    else setTimeout(begin, 500);
    return;
  }
  set($("place"), visible(known.url));
  if (stream) stream.open();
  else {
    stream = new Stream({
      onHello: () => { focused = ""; focusSoon(); detail.recall(); },
      onNews: (news) => {
        health = news.health ?? health;
        since = news.since ?? since;
        if (news.since) hasNews = true;
        if (locks.apply(news) || news.all) {
          arrange();
          detail.apply(news);
        } else if (news.events.length > 0) detail.apply(news);
        drawFigures();
        drawState();
      },
      onState: (isLive) => {
        drawState();
        if (isLive) ask("/ui/store").then((value) => { known = value; }).catch(() => {});
      },
      onSignIn: () => askToken($("sign-in"), begin),
    });
  }
}

/** Shows what the address says. */
function route() {
  const hash = location.hash.slice(1);
  const isStore = hash === "store";
  $("store-view").hidden = !isStore;
  $("locks-view").hidden = isStore;
  $("to-store").setAttribute("aria-pressed", isStore);
  $("to-locks").setAttribute("aria-pressed", !isStore);
  if (hash.startsWith("lock=")) {
    const name = decodeURIComponent(hash.slice(5));
    if (detail.name !== name) detail.open(name);
    table.activate(name);
  } else detail.close();
  table.draw();
  focusSoon();
  drawStoreView();
}

function leave() {
  location.hash = "";
  $("scroller").focus({ preventScroll: true });
}

$("filter").addEventListener("input", (event) => { shown.filter = event.target.value; $("scroller").scrollTop = 0; arrange(); });
$("filter").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "Enter") {
    $("scroller").focus();
    table.onKey(new KeyboardEvent("keydown", { key: "Home" }));
    event.preventDefault();
  }
});
$("sort").addEventListener("change", (event) => { shown.sort = event.target.value; $("scroller").scrollTop = 0; arrange(); });
$("grouped").addEventListener("change", (event) => { shown.grouped = event.target.checked; arrange(); });
$("to-locks").addEventListener("click", () => { location.hash = ""; });
$("to-store").addEventListener("click", () => { location.hash = "store"; });
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", focusSoon);
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (isTyping && event.target.value) return;
    if (detail.name !== null) leave();
    else $("scroller").focus();
  }
});
setInterval(() => {
  if (document.hidden || !stream?.isLive) return;
  table.tick();
  detail.tick();
  drawFigures();
}, 250);
setInterval(drawStoreView, 1000);

drawState();
route();
begin();
