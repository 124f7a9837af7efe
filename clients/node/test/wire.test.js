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
