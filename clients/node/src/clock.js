// The clock that windows are counted with.
//
// hrtime stands still while the machine is suspended, and Node has no clock that does not. The time since boot runs
// then, in steps of 10 ms (/proc/uptime). Their difference only grows, and by how much is how long the machine slept.
import { openSync, readSync } from 'node:fs';

/** The steps of /proc/uptime, in milliseconds. */
const STEP = 10;
const buffer = Buffer.alloc(64);
const uptime = open();

function open() {
  if (process.platform !== 'linux') return undefined;
  try {
    return openSync('/proc/uptime', 'r');
  } catch {
    return undefined;
  }
}

/** Milliseconds that do not run in suspend. */
export const now = () => performance.now();

/** By how much the time since boot is ahead of `now`, rounded down; elsewhere than on Linux always 0. */
function ahead() {
  if (uptime === undefined) return 0;
  const length = readSync(uptime, buffer, 0, buffer.length, 0);
  return Number.parseFloat(buffer.latin1Slice(0, length)) * 1000 - now();
}

let known = ahead();

/**
 * A lower bound of `ahead()` at this moment, for free: the latest that was read. Too small is safe, because all of the
 * difference to a later reading counts as sleep.
 */
export const noted = () => known;

/** Milliseconds that the machine may have slept since `then`, of `noted()`: never too few. */
export function slept(then) {
  const read = ahead();
  // The largest reading is the most exact: each was rounded down.
  if (read > known) known = read;
  // Rounded down by less than a step.
  return uptime === undefined ? 0 : Math.max(0, read + STEP - then);
}
