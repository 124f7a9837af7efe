// Answers as bytes, the window and the clock, without a server.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { now, noted, slept } from '../src/clock.js';
import { Busy, fromAnswer, Lost, Refused, Unavailable } from '../src/errors.js';
import { Reader, segment } from '../src/wire.js';
import { question, Window } from '../src/window.js';

const LINES = ['{"event":"granted"}', '{"event":"renewed","name":"锁"}', '{"event":"released"}'];
const chunk = (line) => `${Buffer.byteLength(line).toString(16)}\r\n${line}\r\n`;
const STREAM = `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${LINES.map((line) => chunk(`${line}\n`)).join('')}0\r\n\r\n`;
const PLAIN = 'HTTP/1.1 409 Conflict\r\nContent-Length: 15\r\n\r\n{"kind":"busy"}';

test('answers are read however they are cut', () => {
  const data = Buffer.from(STREAM + PLAIN);
  for (let size = 1; size <= data.length; size++) {
    const reader = new Reader();
    const lines = [];
    let streams = true;
    let answer;
    for (let start = 0; start < data.length; start += size) {
      reader.feed(data.subarray(start, start + size));
      if (streams && reader.head()) {
        lines.push(...reader.lines());
        streams = !reader.endOfStream();
      }
      if (!streams) answer ??= reader.body();
    }
    assert.deepEqual(lines, LINES, `in pieces of ${size}`);
    assert.deepEqual(answer, { status: 409, body: '{"kind":"busy"}' });
  }
});

test('what is no answer is an error and not a hang', () => {
  const reader = new Reader();
  reader.feed(Buffer.from('SSH-2.0 nothing\r\n\r\n'));
  assert.throws(() => reader.head());
});

test('a name is one segment of a path', () => {
  for (const name of ['.', '..', 'a/b', 'a?b', '%2F', '锁', 'a\r\nHost: evil', ' ', "'()*!"]) {
    const path = segment(name);
    assert.equal(decodeURIComponent(path), name);
    assert.ok(!['.', '..'].includes(path) && !/[/?# \r\n]/.test(path), path);
  }
});

const granted = { event: 'granted', hold: 'h', token: '1152921504606846977', until_us: 1_000_000, ttl_ms: 1_000 };
const ago = (millis) => ({ ...question(), at: now() - millis });

test('a window counts from before the question', () => {
  const window = new Window(granted, question());
  assert.equal(window.token, 1152921504606846977n);
  assert.ok(window.remaining() > 0 && window.remaining() <= 1_000);
  assert.equal(new Window(granted, ago(2_000)).remaining(), 0);
});

test('time in suspend counts', () => {
  const asked = question();
  // As if the machine had slept for two seconds since: the time since boot is ahead by that much more.
  const window = new Window(granted, { ...asked, ahead: asked.ahead - 2_000 });
  assert.equal(window.remaining(), 0);
});

test('the clock that runs in suspend is never behind', () => {
  for (let i = 0; i < 1_000; i++) assert.ok(slept(noted()) >= 0 && slept(noted()) < 100);
});

test('a line of the stream never extends the window', () => {
  const window = new Window(granted, ago(2_000));
  window.read('{"event":"renewed","until_us":10000000}');
  assert.equal(window.remaining(), 0);
});

test('a confirmation extends the window only while it is open', () => {
  const open = new Window(granted, question());
  open.confirmed({ status: 200, body: '{"until_us":5000000}' }, question());
  assert.ok(open.remaining() > 4_000);
  const ended = new Window(granted, ago(2_000));
  ended.confirmed({ status: 200, body: '{"until_us":5000000}' }, question());
  assert.equal(ended.remaining(), 0);
  const refused = new Window(granted, question());
  refused.confirmed({ status: 410, body: '{"kind":"lost","message":"evicted"}' }, question());
  assert.ok(refused.lost instanceof Lost);
});

test('errors carry their kind and whether to try again', () => {
  const busy = fromAnswer(409, '{"kind":"busy","message":"held by x","retryable":true}');
  assert.ok(busy instanceof Busy);
  assert.deepEqual([busy.kind, busy.message, busy.retryable], ['busy', 'held by x', true]);
  assert.ok(fromAnswer(503, 'proxy') instanceof Unavailable);
  assert.ok(fromAnswer(418, '{"kind":"teapot"}') instanceof Refused);
});

// The usual grant and release are read at once, all others step by step, and both alike.
const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n';
const LINE = JSON.stringify(granted);
const GRANT = HEAD + chunk(`${LINE}\n`);
const RELEASED = chunk('{"event":"released"}\n');
const END = '0\r\n\r\n';

const feed = (reader, text) => reader.feed(Buffer.from(text, 'latin1'));

/** The lines that have come, as `Lock` and `Link` read them. */
function read(reader, text) {
  feed(reader, text);
  const sole = reader.soleLine();
  if (sole !== undefined) return [sole];
  return reader.head() ? reader.lines() : [];
}

/** A reader that has read a stream before. */
function used() {
  const reader = new Reader();
  assert.deepEqual(read(reader, GRANT), [LINE]);
  feed(reader, RELEASED + END);
  assert.ok(reader.saysReleased());
  return reader;
}

test('a grant is read at once if the head is known', () => {
  const reader = used();
  feed(reader, GRANT);
  assert.equal(reader.soleLine(), LINE);
  assert.deepEqual([reader.status, reader.keeps, reader.ended, reader.raw], [200, true, false, '']);
  const fresh = new Reader();
  feed(fresh, GRANT);
  assert.equal(fresh.soleLine(), undefined);
});

test('a grant and a release that come in two pieces are the same', () => {
  for (let cut = 1; cut < GRANT.length; cut++) {
    const reader = used();
    assert.deepEqual([...read(reader, GRANT.slice(0, cut)), ...read(reader, GRANT.slice(cut))], [LINE]);
    assert.deepEqual([reader.status, reader.ended, reader.raw, reader.text], [200, false, '', '']);
  }
  const all = RELEASED + END;
  for (let cut = 1; cut < all.length; cut++) {
    const reader = used();
    read(reader, GRANT);
    const lines = [];
    for (const piece of [all.slice(0, cut), all.slice(cut)]) {
      feed(reader, piece);
      lines.push(...(reader.saysReleased() ? ['{"event":"released"}'] : reader.lines()));
    }
    assert.deepEqual(lines, ['{"event":"released"}'], `cut at ${cut}`);
    assert.ok(reader.endOfStream());
    assert.deepEqual(read(reader, GRANT), [LINE]);
  }
});

test('more than a grant is read step by step', () => {
  for (const more of [chunk('{"event":"lost"}\n'), END, '0', '5\r']) {
    const reader = used();
    feed(reader, GRANT + more);
    assert.equal(reader.soleLine(), undefined);
    assert.equal(read(reader, '')[0], LINE);
  }
  assert.deepEqual(read(used(), HEAD + chunk(`${LINE}\n${LINE}\n`)), [LINE, LINE]);
});

test('a line is no release unless it says so', () => {
  for (const line of ['{}', '{"event":"released"} ', '{"event":"lost"}', '['.repeat(5_000), '\x00']) {
    const reader = used();
    read(reader, GRANT);
    feed(reader, chunk(`${line}\n`));
    assert.ok(!reader.saysReleased());
    assert.deepEqual(reader.lines(), [line]);
  }
  // Behind the end of a stream.
  const reader = used();
  feed(reader, RELEASED);
  assert.ok(!reader.saysReleased());
});

test('a chunk of another size is not read at once', () => {
  const rest = GRANT.slice(GRANT.indexOf('{') - 2);
  const size = LINE.length + 1;
  for (const wrong of ['-5', '', 'xyz', '1', (size - 1).toString(16)]) {
    const reader = used();
    feed(reader, HEAD + wrong + rest);
    assert.equal(reader.soleLine(), undefined, wrong);
    assert.ok(reader.head());
    assert.throws(() => reader.lines(), wrong);
  }
  // It may go on.
  assert.deepEqual(read(used(), HEAD + (size + 1).toString(16) + rest), []);
});

test('a line may be longer than what is read at once, but has to end', () => {
  const line = JSON.stringify({ event: 'granted', label: '锁'.repeat(100_000) });
  const data = Buffer.from(HEAD + chunk(`${line}\n`));
  const reader = used();
  const lines = [];
  for (let start = 0; start < data.length; start += 8_192) {
    lines.push(...read(reader, data.subarray(start, start + 8_192).toString('latin1')));
  }
  assert.deepEqual(lines, [line]);
  const endless = ['1'.repeat(70_000), `ffffffff\r\n${'x'.repeat(2 ** 22)}`, chunk('x'.repeat(2 ** 21))];
  for (const data of endless) assert.throws(() => read(used(), HEAD + data));
  assert.throws(() => read(new Reader(), 'x'.repeat(70_000)));
  assert.throws(() => read(new Reader(), 'HTTP/1.1 200 OK\r\ncontent-length: -7\r\n\r\n'));
});
