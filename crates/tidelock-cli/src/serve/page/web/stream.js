// The connection to the server: what it sends, its clock, and whether it is there.

/** Without a sign of life for this long, the server hangs. It sends one every two seconds. */
const SILENCE = 6000;

/** How often a server that is gone is tried again. */
const AGAIN = 500;

export class Stream {
  constructor({ onNews, onState, onHello, onSignIn }) {
    Object.assign(this, { onNews, onState, onHello, onSignIn });
    this.viewer = null;
    this.isLive = false;
    // The server's time at a moment of this page's own clock, which nobody can set.
    this.base = { server: Date.now(), here: performance.now() };
    this.heard = performance.now();
    setInterval(() => {
      if (this.source && performance.now() - this.heard > SILENCE) this.reopen();
    }, 1000);
    this.open();
  }

  /** The server's time now. It stands still while the server is gone. */
  now() {
    const here = this.isLive ? performance.now() : this.heard;
    return this.base.server + (here - this.base.here);
  }

  open() {
    this.heard = performance.now();
    const source = new EventSource("/ui/events");
    this.source = source;
    const on = (kind, take) => source.addEventListener(kind, (event) => {
      if (source !== this.source) return;
      const value = JSON.parse(event.data);
      this.heard = performance.now();
      if (value.now) this.base = { server: value.now, here: this.heard };
      if (!this.isLive) {
        this.isLive = true;
        this.onState(true);
      }
      take(value);
    });
    on("hello", (value) => {
      this.viewer = value.viewer;
      this.onHello(value);
    });
    on("news", (value) => this.onNews(value));
    on("beat", (value) => this.onNews({ rows: [], gone: [], events: [], all: false, ...value }));
    source.onerror = () => {
      if (source !== this.source) return;
      this.lose();
      // A browser tries again on its own, unless the server answered with an error.
      if (source.readyState === EventSource.CLOSED) this.retry();
    };
  }

  lose() {
    if (this.isLive) {
      this.isLive = false;
      this.onState(false);
    }
  }

  reopen() {
    this.source.close();
    this.lose();
    this.open();
  }

  async retry() {
    this.source.close();
    this.source = null;
    const answer = await fetch("/ui/store").catch(() => null);
    if (answer?.status === 401) this.onSignIn();
    else setTimeout(() => this.open(), AGAIN);
  }
}

/** Asks the server for something, and returns its answer or throws what it says. */
export async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  const answer = await fetch(path, options);
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw Object.assign(new Error(value.message ?? `the server answered ${answer.status}`), { status: answer.status });
  }
  return value;
}
