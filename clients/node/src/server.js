// The server: one that runs already, or a private one, which ends when the program ends.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Refused, Unavailable } from './errors.js';

/** The program that serves: `TIDELOCK_BINARY`, the one in this package, or the one on the path. */
function binary() {
  if (process.env.TIDELOCK_BINARY) return process.env.TIDELOCK_BINARY;
  const bundled = fileURLToPath(new URL('../bin/tidelock', import.meta.url));
  return existsSync(bundled) ? bundled : 'tidelock';
}

function folder() {
  const named = process.env.XDG_RUNTIME_DIR;
  return named && statSync(named, { throwIfNoEntry: false })?.isDirectory() ? named : tmpdir();
}

/** Starts a server that only this process uses; resolves when it is ready. */
function start(url) {
  // Nobody can guess the name, and the server creates the socket for this user only.
  const path = join(folder(), `tidelock-${randomBytes(8).toString('hex')}.sock`);
  // Not as an argument: a URL may have a password, and everybody can list arguments.
  const env = url === undefined ? process.env : { ...process.env, TIDELOCK_URL: url };
  const program = binary();
  const child = spawn(program, ['serve', '--listen', `unix:${path}`, '--until-stdin-closes'], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env,
    // A group of its own: Ctrl-C is for the program, which may have locks to release.
    detached: true,
  });
  const server = { path, child, ended: false };
  let errors = '';
  let out = '';
  return new Promise((resolve, reject) => {
    child.once('error', (cause) => {
      server.ended = true;
      reject(new Unavailable(`the server ${program} cannot be started: ${cause.message}`, { cause, retryable: false }));
    });
    child.once('exit', (code, signal) => {
      server.ended = true;
      reject(new Refused(errors.trim() || `the server ended with ${code ?? signal}`, { kind: 'config' }));
    });
    child.stdin.on('error', () => {});
    child.stderr.on('data', (data) => {
      if (errors.length < 10_000) errors += data;
    });
    child.stdout.on('data', (data) => {
      out += data;
      if (!out.includes('"listening"') || !out.includes('\n')) return;
      // The program may end while the server runs, and the server then ends, too.
      child.unref();
      for (const stream of [child.stdin, child.stdout, child.stderr]) stream.unref?.();
      resolve(server);
    });
  });
}

/** Where the server of a client is. */
export class Place {
  #starting;
  #server;

  constructor(url, socket, token, ca) {
    if (url !== undefined && socket !== undefined) {
      throw new Refused('a server has its own URL: give a URL or a socket');
    }
    this.url = url;
    this.socket = socket ?? (url === undefined ? process.env.TIDELOCK_SOCKET : undefined);
    this.token = token;
    this.ca = ca;
    // Clocks of two machines may run at rates that differ by up to a percent.
    this.trust = /^(tcp|https):/.test(this.socket ?? '') ? 0.99 : 1;
  }

  /** What `net.connect` or, with `tls`, `tls.connect` takes. A private server that does not run is started. */
  async address() {
    if (this.socket !== undefined) {
      const [, scheme, host, port] = /^(tcp|https):(?:\/\/)?(.*):(\d+)\/?$/.exec(this.socket) ?? [];
      if (scheme) {
        const ca = this.ca === undefined ? undefined : readFileSync(this.ca);
        return { tls: scheme === 'https', host: host.replace(/^\[|\]$/g, ''), port: Number(port), noDelay: true, ca };
      }
      return { path: this.socket.replace(/^unix:/, '') };
    }
    if (this.#server === undefined || this.#server.ended) {
      this.#starting ??= start(this.url).finally(() => {
        this.#starting = undefined;
      });
      this.#server = await this.#starting;
    }
    return { path: this.#server.path };
  }

  /** The process of the private server, if there is one. */
  get pid() {
    return this.#server?.child.pid;
  }

  /** Ends a private server, and waits for that; one that hangs is killed. */
  async close(limit = 5_000) {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined || server.ended) return;
    await new Promise((resolve) => {
      server.child.ref();
      const timer = setTimeout(() => server.child.kill('SIGKILL'), limit);
      server.child.once('exit', () => {
        clearTimeout(timer);
        resolve();
      });
      server.child.stdin.end();
    });
  }
}
