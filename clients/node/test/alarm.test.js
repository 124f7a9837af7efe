// One timer for all holds and waits of a client.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Alarm } from '../src/alarm.js';
import { now } from '../src/clock.js';

function item() {
  const made = { at: 0, early: 0, rang: false };
  made.rung = new Promise((resolve) => {
    made.ring = () => {
      assert.ok(!made.rang);
      made.rang = true;
      resolve();
    };
  });
  return made;
}

/** The timer of an alarm does not keep the program alive. */
async function awake(work) {
  const timer = setInterval(() => {}, 1_000);
  await work();
  clearInterval(timer);
}

test('what is due rings and nothing else', () =>
  awake(async () => {
    const alarm = new Alarm();
    const [late, later, gone, first, second] = Array.from({ length: 5 }, item);
    alarm.set(late, now() + 1e6, 0);
    alarm.set(later, now() + 2e6, 2e6);
    alarm.set(gone, now() + 1, 0);
    alarm.set(second, now() + 20, 0);
    // Earlier than what the timer was set for.
    alarm.set(first, now() + 1, 0);
    alarm.delete(gone);
    await first.rung;
    // What may be early goes along.
    await later.rung;
    await second.rung;
    assert.ok(!late.rang && !gone.rang);
  }));

test('an item that is set again rings once at its new time', () =>
  awake(async () => {
    const alarm = new Alarm();
    const [moved, other] = [item(), item()];
    alarm.set(moved, now() + 1, 0);
    alarm.set(moved, now() + 1e6, 0);
    alarm.set(other, now() + 20, 0);
    await other.rung;
    assert.ok(!moved.rang);
    alarm.set(moved, now(), 0);
    await moved.rung;
  }));

test('an item may set itself when it rings, and may be due after the longest timer', () =>
  awake(async () => {
    const alarm = new Alarm();
    alarm.set(item(), now() + 1e12, 0);
    let rings = 0;
    await new Promise((resolve) => {
      const again = {
        ring: () => {
          rings += 1;
          if (rings < 3) alarm.set(again, now() + 1, 0);
          else resolve();
        },
      };
      alarm.set(again, now() + 1, 0);
    });
    assert.equal(rings, 3);
  }));
