// What a program in Node relies on beyond the scenarios: its private server, signals, `run`, and the READMEs.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as rest } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as tidelock from '../src/index.js';
import { redis } from './stage.js';

const { Busy, connect, DoneAlready, Lost, Refused, RunningNow, TimedOut, Unavailable } = tidelock;
const folder = mkdtempSync(join(tmpdir(), 'tidelock-client-'));
const INDEX = fileURLToPath(new URL('../src/index.js', import.meta.url));
const LIMIT = 60_000;
/** By how much a confirmation prolongs a window at least. The clock alone has steps of 10 ms. */
const RISE = 50;
let store;
let locks;

before(async () => {
  store = await redis(join(folder, 'redis'));
  locks = await connect(store.url);
});
after(async () => {
  await locks?.close();
  await store?.kill();
  rmSync(folder, { recursive: true, force: true });
});

const fresh = () => `test/${randomUUID()}`;
const evict = async (name) => locks.evict(name, (await locks.look(name)).holders[0].claim, 'test');

async function until(condition, what) {
  const end = performance.now() + LIMIT;
  while (!(await condition())) {
    assert.ok(performance.now() < end, `${what} did not happen`);
    await rest(5);
  }
}

const isAlive = (pid) => existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));

test('a hold has a token, a window and a signal, and is released at the end of its block', async () => {
  const name = fresh();
  const held = await locks.mutex(name).lock({ wait: 5000 });
  assert.equal(typeof held.token, 'bigint');
  assert.ok(held.isHeld() && held.remaining() > 0 && held.remaining() <= 30_000);
  assert.equal(held.signal.aborted, false);
  assert.equal((await locks.look(name)).holders[0].token, held.token);
  await held[Symbol.asyncDispose]();
  assert.equal(held.isHeld(), false);
  assert.deepEqual((await locks.look(name)).holders, []);
  await held.release();
});

test('run gives the result, releases, and keeps the error of the work', async () => {
  const name = fresh();
  assert.equal(await locks.mutex(name).run((held) => held.isHeld()), true);
  await assert.rejects(
    locks.mutex(name).run(() => {
      throw new RangeError('of the work');
    }),
    RangeError,
  );
  assert.notEqual(await locks.mutex(name).tryLock(), undefined);
});

test('a loss fires the signal and rejects run at once, whatever the work does', async () => {
  const name = fresh();
  let reason;
  await assert.rejects(
    locks.mutex(name).run(async (held) => {
      held.signal.addEventListener('abort', () => {
        reason = held.signal.reason;
      });
      await evict(name);
      await new Promise(() => {});
    }),
    Lost,
  );
  assert.ok(reason instanceof Lost);
});

test('busy and timed out are told apart, and an aborted signal leaves the queue', async () => {
  const name = fresh();
  const held = await locks.mutex(name).lock();
  assert.equal(await locks.mutex(name).tryLock(), undefined);
  await assert.rejects(locks.mutex(name, { wait: 0 }).lock(), Busy);
  await assert.rejects(locks.mutex(name).lock({ wait: '100ms' }), TimedOut);
  const controller = new AbortController();
  const waiting = locks.mutex(name, { label: 'a waiter of its own' }).lock({ signal: controller.signal });
  await until(async () => (await locks.look(name)).waiters.length === 1, 'the wait');
  controller.abort(new Error('enough'));
  await assert.rejects(waiting, /enough/);
  await until(async () => (await locks.look(name)).waiters.length === 0, 'leaving the queue');
  await held.release();
});

test('a hold lives longer than its ttl', async () => {
  const held = await locks.mutex(fresh(), { ttl: 600 }).lock();
  let last = held.remaining();
  let rises = 0;
  await until(() => {
    assert.ok(held.isHeld());
    const remaining = held.remaining();
    if (remaining > last + RISE) rises += 1;
    last = remaining;
    return rises >= 5;
  }, 'five confirmations');
  await held.release();
});

test('many holds are confirmed together', async () => {
  const helds = await Promise.all(Array.from({ length: 150 }, () => locks.mutex(fresh(), { ttl: 3_000 }).lock()));
  const before = helds.map((held) => held.remaining());
  const confirmed = new Set();
  await until(() => {
    helds.forEach((held, at) => {
      assert.ok(held.isHeld());
      const remaining = held.remaining();
      if (remaining > before[at] + RISE) confirmed.add(held);
      before[at] = remaining;
    });
    return confirmed.size === helds.length;
  }, 'a confirmation of each');
  await Promise.all(helds.map((held) => held.release()));
});

test('an event loop that was blocked does not believe what it held', async () => {
  const name = fresh();
  const held = await locks.mutex(name, { ttl: 500 }).lock();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
  assert.equal(held.isHeld(), false);
  await assert.rejects(held.release(), Lost);
});

test('a private server that was killed is a loss, and is started again', async () => {
  const own = await connect(store.url);
  const name = fresh();
  const held = await own.mutex(name, { ttl: 1000 }).lock();
  const first = own.serverPid;
  process.kill(first, 'SIGKILL');
  if (!held.signal.aborted) await once(held.signal, 'abort');
  await own.mutex(name).run(() => assert.notEqual(own.serverPid, first), { wait: 30_000 });
  await own.close();
  await assert.rejects(own.mutex(name).lock(), Refused);
});

for (const end of ['return', 'kill']) {
  test(`a private server ends with its program (${end})`, async () => {
    const name = fresh();
    const last = end === 'kill' ? 'await new Promise(() => {});' : 'await held.release();';
    const file = join(folder, `${end}.mjs`);
    writeFileSync(
      file,
      `import { connect } from ${JSON.stringify(INDEX)};
       const locks = await connect(${JSON.stringify(store.url)});
       const held = await locks.mutex(${JSON.stringify(name)}).lock();
       console.log(locks.serverPid);
       ${last}`,
    );
    const program = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
    const server = Number((await once(program.stdout, 'data'))[0]);
    if (end === 'kill') program.kill('SIGKILL');
    await once(program, 'exit');
    await until(() => !isAlive(server), 'the end of the server');
    await locks.mutex(name).run(() => {}, { wait: 20_000 });
  });
}

test('a wrong URL and a server that is not there are said at once', async () => {
  await assert.rejects(connect('nosuchstore://x'), (error) => error instanceof Refused && /nosuchstore/.test(error.message));
  await assert.rejects(connect({ socket: join(folder, 'none.sock') }), Unavailable);
});

test('once, elections, tickets and stock', async () => {
  const name = fresh();
  await locks.once(name, { every: '1d' }).run(async () => {
    await assert.rejects(locks.once(name, { every: '1d' }).start(), RunningNow);
  });
  await assert.rejects(locks.once(name, { every: '1d' }).start(), DoneAlready);

  const election = locks.election(fresh(), { advertise: 'http://here' });
  assert.equal(await election.leader(), undefined);
  await election.lead(async (held) => {
    const leader = await election.leader();
    assert.equal(leader.token, held.token);
    assert.equal(leader.advertised, 'http://here');
    for await (const seen of election.watch()) {
      assert.equal(seen?.token, held.token);
      break;
    }
  });

  const ticket = await locks.acquireTicket(name, { ttl: '60s' });
  assert.equal((await locks.renewTicket(ticket)).token, ticket.token);
  await locks.releaseTicket(ticket);
  await assert.rejects(locks.releaseTicket(ticket), Lost);

  const stock = await locks.stock(name).open(2, { segments: 1 });
  assert.deepEqual([await stock.take('a'), await stock.take('a'), await stock.reserve('b')], ['taken', 'taken', 'reserved']);
  assert.equal(await stock.take('c'), 'sold_out');
  assert.equal(await stock.confirm('b'), true);
  assert.equal(await stock.remaining(), 0);
});

test('connections are used again, and calls run side by side', async () => {
  const name = fresh();
  let inside = 0;
  let total = 0;
  const work = async () => {
    for (let i = 0; i < 10; i++) {
      await locks.mutex(name).run(async () => {
        inside += 1;
        assert.equal(inside, 1);
        await rest(0);
        total += 1;
        inside -= 1;
      });
    }
  };
  await Promise.all(Array.from({ length: 20 }, work));
  assert.equal(total, 200);
});

test('what the types export is what the module exports', () => {
  const types = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8');
  const declared = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual([...new Set(declared)].sort(), Object.keys(tidelock).sort());
});

for (const [page, part] of [
  ['README.md', '## In four languages'],
  ['README.zh-CN.md', '## 四种语言'],
]) {
  test(`the example in ${page} runs`, () => {
    const text = readFileSync(new URL(`../../../${page}`, import.meta.url), 'utf8');
    const [, example] = /```js\n(.*?)```/s.exec(text.slice(text.indexOf(part)));
    const file = join(folder, 'readme.mjs');
    writeFileSync(file, `const writeOrder = console.log;\n${example.replace("'tidelock'", JSON.stringify(INDEX))}`);
    const env = { ...process.env, TIDELOCK_DIR: join(folder, 'locks') };
    assert.match(execFileSync(process.execPath, [file], { env, encoding: 'utf8', timeout: LIMIT }), /^\d+n\n$/);
  });
}

test('the package that is installed brings its server along', () => {
  const packed = join(folder, 'packed');
  const program = join(folder, 'program');
  for (const path of [packed, program]) mkdirSync(path);
  const client = fileURLToPath(new URL('..', import.meta.url));
  execFileSync('npm', ['pack', '--silent', '--pack-destination', packed], { cwd: client });
  const [name] = readdirSync(packed);
  execFileSync('npm', ['install', '--silent', '--offline', '--no-audit', join(packed, name)], { cwd: program });
  writeFileSync(
    join(program, 'main.mjs'),
    `import { connect } from 'tidelock';
    const locks = await connect('memory:');
    await locks.mutex('a').run((held) => console.log(held.isHeld()));
    await locks.close();`,
  );
  // Nothing else can be the server.
  const { TIDELOCK_BINARY, TIDELOCK_SOCKET, ...env } = process.env;
  const out = execFileSync(process.execPath, ['main.mjs'], { cwd: program, env: { ...env, PATH: program } });
  assert.equal(String(out), 'true\n');
});
