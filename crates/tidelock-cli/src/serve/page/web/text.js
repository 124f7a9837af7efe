// Text and elements. All text from locks goes through textContent, with what is invisible or turns text around made
// visible, so that a name can be trusted to be what it looks like.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

/** Text with hidden characters as escapes. */
export function visible(text) {
  return String(text).replace(HIDDEN, (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** An element. `text` is shown as it is; a function is a listener; the rest are attributes. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child));
  return element;
}

/** Text of others, kept apart from the text around it. */
export function told(text, attributes = {}) {
  return el("bdi", { ...attributes, text: visible(text) });
}

/** Changes a text only if it is another one. */
export function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A span of time with two units at most. */
export function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} m`;
  return `${Math.floor(seconds / 86400)} d ${two(Math.floor(seconds / 3600) % 24)} h`;
}

/** A short time, as round trips are. */
export function brief(us) {
  if (us === undefined || us === null) return "–";
  if (us < 1000) return `${us} µs`;
  if (us < 10_000) return `${(us / 1000).toFixed(1)} ms`;
  return us < 1_000_000 ? `${Math.round(us / 1000)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

/** The time of day. */
export function timeOfDay(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** A number and its noun. */
export function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}
