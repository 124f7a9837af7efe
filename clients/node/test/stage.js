// Programs, a server and stores on which scenarios are played: see ../../scenarios.json.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** Nothing that a test waits for takes longer, unless it never comes. */
const LIMIT = 60_000;
export const BINARY = process.env.TIDELOCK_BINARY ?? 'tidelock';

/** A child process whose lines are read. */
export class Process {
  #lines = [];
  #waiter;
  ended = false;

  constructor(command, args, env = {}) {
    this.child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...env } });
    this.exit = once(this.child, 'exit').then(() => {
      this.ended = true;
      this.#come(undefined);
    });
    this.child.stdin.on('error', () => {});
    createInterface({ input: this.child.stdout }).on('line', (line) => this.#come(line));
  }

  #come(line) {
    const waiter = this.#waiter;
    // At once: the next line may come before the one that waits goes on.
    this.#waiter = undefined;
    if (waiter) waiter(line);
    else this.#lines.push(line);
  }

  say(line) {
    this.child.stdin.write(`${line}\n`);
  }

  async line() {
    if (this.#lines.length > 0) return this.#lines.shift();
    let timer;
    const line = await new Promise((resolve, reject) => {
      this.#waiter = resolve;
      timer = setTimeout(() => reject(new Error(`nothing came from ${this.child.spawnargs.join(' ')}`)), LIMIT);
    });
    clearTimeout(timer);
    return line;
  }

  async hear() {
    const line = await this.line();
    assert.notEqual(line, undefined, `${this.child.spawnargs.join(' ')} ended`);
    return JSON.parse(line);
  }

  signal(name) {
    this.child.kill(name);
  }

  async kill() {
    this.signal('SIGKILL');
    await this.exit;
  }

  async end() {
    if (this.ended) return;
    this.signal('SIGCONT');
    this.child.stdin.end();
    const timer = setTimeout(() => this.signal('SIGKILL'), 10_000);
    await this.exit;
    clearTimeout(timer);
  }
}

/** A Redis server of the tests. */
export async function redis(folder) {
  mkdirSync(folder, { recursive: true });
  const free = createServer().listen(0, '127.0.0.1');
  await once(free, 'listening');
  const { port } = free.address();
  await new Promise((resolve) => free.close(resolve));
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder];
  const server = new Process('redis-server', args);
  for (;;) {
    const line = await server.line();
    assert.notEqual(line, undefined, 'redis-server did not start');
    if (line.includes('Ready to accept connections')) break;
  }
  server.url = `redis://127.0.0.1:${port}`;
  return server;
}

/** A server that programs share. */
export async function serve(path, url) {
  const server = new Process(BINARY, ['serve', '--listen', `unix:${path}`, '--until-stdin-closes'], { TIDELOCK_URL: url });
  assert.equal((await server.hear()).event, 'listening');
  return server;
}

/** One scenario, with its own names on stores that scenarios share. */
export class Stage {
  #folder = mkdtempSync(join(tmpdir(), 'tidelock-node-'));
  #servers = new Map();
  #programs = new Map();
  #tokens = new Map();
  #prefix = `${randomUUID().slice(0, 8)}/`;

  constructor(stores) {
    this.stores = stores;
    this.counter = join(this.#folder, 'counter');
    writeFileSync(this.counter, '0');
  }

  #socket(store) {
    return join(this.#folder, `${store}.sock`);
  }

  async #startServer(store = 'one') {
    this.#servers.set(store, await serve(this.#socket(store), this.stores[store].url));
  }

  async #program(who, store) {
    if (!this.#programs.has(who)) {
      if (!this.#servers.has(store)) await this.#startServer(store);
      const path = fileURLToPath(new URL('program.js', import.meta.url));
      this.#programs.set(who, new Process(process.execPath, [path], { TIDELOCK_SOCKET: this.#socket(store) }));
    }
    return this.#programs.get(who);
  }

  async play(scenario) {
    for (const name of scenario.each ?? ['n']) {
      for (const step of scenario.steps) await this.#step(scenario, name, ...step);
    }
  }

  async #step(scenario, name, who, what, args, expected) {
    if (who === 'server' || who === 'store') return this.#fault(who, what);
    const store = scenario.stores?.[who] ?? 'one';
    const program = await this.#program(who, store);
    if (what === 'stop' || what === 'continue' || what === 'kill') return signal(program, what);
    if (what !== 'answer') {
      const step = { ...args, do: what.replace('~', ''), file: this.counter };
      // All of them are held at the same time.
      if (scenario.each && step.as) step.as += name;
      if (step.name && !step.exact) step.name = this.#prefix + (step.name === 'n' ? name : step.name);
      if (step.names) step.names = step.names.map((each) => this.#prefix + each);
      program.asked = step;
      program.say(JSON.stringify(step));
    }
    if (what.startsWith('~')) return;
    const answer = await program.hear();
    assert.equal(answer.result, expected, `(${name}) ${who} ${what} ${JSON.stringify(args)}: ${JSON.stringify(answer)}`);
    const { name: asked, share = 'exclusive' } = program.asked;
    if (answer.token && asked && share === 'exclusive') {
      const key = `${store} ${asked}`;
      assert.ok(BigInt(answer.token) > (this.#tokens.get(key) ?? 0n), 'the token is not larger than the last one');
      this.#tokens.set(key, BigInt(answer.token));
    }
  }

  async #fault(who, what) {
    if (who === 'store') return signal(this.stores.one, what);
    if (what === 'start') return this.#startServer();
    if (what === 'restart') {
      await this.#servers.get('one').end();
      return this.#startServer();
    }
    return signal(this.#servers.get('one'), what);
  }

  async end() {
    for (const process of [...this.#programs.values(), ...this.#servers.values()]) await process.end();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function signal(process, what) {
  if (what === 'kill') return process.kill();
  process.signal(what === 'stop' ? 'SIGSTOP' : 'SIGCONT');
  // A thread of it may run on for a while.
  if (what === 'stop') while (!isStopped(process.child.pid)) await new Promise((resolve) => setImmediate(resolve));
}

/** Whether no thread of a process runs. */
function isStopped(pid) {
  const state = (task) => readFileSync(`/proc/${pid}/task/${task}/stat`, 'utf8').split(') ').at(-1)[0];
  return readdirSync(`/proc/${pid}/task`).every((task) => state(task) === 'T');
}
