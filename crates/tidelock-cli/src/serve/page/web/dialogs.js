// Dialogues: breaking a claim, and signing in.

import { ask } from "./stream.js";
import { count, el, span, told, visible } from "./text.js";

/** Asks whether to take a claim away, and why; then does it. */
export function askBreak(dialog, { lock, claim, holds }, now) {
  const reason = el("input", { type: "text", id: "reason", maxlength: 128, required: true, autocomplete: "off", placeholder: "hangs since noon, see ticket 4711" });
  const error = el("p", { class: "error", role: "alert", hidden: true });
  const confirm = el("button", { class: "button danger full", type: "submit", text: holds ? "Break the lock" : "Remove from the line" });
  const next = lock.waiters[0];
  const consequence = !holds ? "It loses its place in line and is told why."
    : claim.foreign ? `It is a holder of ${claim.foreign} and cannot be told: its work goes on. Make sure that it has ended.`
    : "It is told that the lock is lost, and why; a command under tidelock run is stopped. Work that does not check its token may go on.";
  const after = !holds ? "" : next ? `${visible(next.label)} is next in line and gets the lock with a larger token${lock.waiting > 1 ? `; ${count(lock.waiting - 1, "more waits", "more wait")}` : ""}.`
    : "Nobody waits: the lock is free then.";
  const form = el("form", { method: "dialog" },
    el("h2", { id: "break-title" }, `${holds ? "Break" : "Leave"} `, told(lock.name, { class: "mono" }), "?"),
    el("p", {}, told(claim.label), ` has ${holds ? "held it" : "waited"} for ${span(now - claim.since)}. ${consequence}`),
    after ? el("p", { text: after }) : null,
    el("label", { for: "reason", text: "Reason, for the holder and the history" }), reason, error,
    el("div", { class: "buttons" },
      el("button", { class: "button", type: "button", text: "Cancel", click: () => dialog.close() }), confirm));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    try {
      await ask("/ui/break", { name: lock.name, claim: claim.claim, reason: reason.value });
      dialog.close();
    } catch (failure) {
      error.textContent = visible(failure.message);
      error.hidden = false;
      confirm.disabled = false;
    }
  });
  dialog.replaceChildren(form);
  dialog.showModal();
  reason.focus();
}

/** Asks for the token of the server. */
export function askToken(dialog, onDone) {
  if (dialog.open) return;
  const key = el("input", { type: "password", id: "key", required: true, autocomplete: "off" });
  const error = el("p", { class: "error", role: "alert", hidden: true });
  const form = el("form", { method: "dialog" },
    el("h2", { id: "sign-in-title", text: "Sign in" }),
    el("p", { text: "This server needs a key. Open the link that tidelock ui printed, or give the token of tidelock serve." }),
    el("label", { for: "key", text: "Token" }), key, error,
    el("div", { class: "buttons" }, el("button", { class: "button main", type: "submit", text: "Sign in" })));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await ask("/ui/session", { key: key.value });
      dialog.close();
      onDone();
    } catch (failure) {
      error.textContent = visible(failure.message);
      error.hidden = false;
    }
  });
  // There is nothing to see without it.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.replaceChildren(form);
  dialog.showModal();
}
