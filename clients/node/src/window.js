// What a client may rely on: the window of one hold, counted from before the question that the server answered.
//
// Lines of the stream never move the deadline: after a pause of this program, a line in the buffer may be older than the
// decision of the server to give the lock away. Only answers to questions of this program do.
import { noted, now, slept } from './clock.js';
import { fromAnswer, fromDetails, Lost } from './errors.js';

/** A moment before a question. */
export const question = () => ({ at: now(), ahead: noted() });

export class Window {
  /** Why the lock was lost. */
  lost = undefined;
  /** Released, or lost: nothing changes any more. */
  ended = false;

  /** `trust`: the part of the server's time on which to rely. */
  constructor(granted, asked, trust = 1) {
    this.trust = trust;
    this.details = granted;
    this.hold = String(granted.hold);
    this.tokens = granted.tokens?.map(BigInt) ?? [BigInt(granted.token)];
    this.token = granted.tokens === undefined || granted.token === undefined ? this.tokens[0] : BigInt(granted.token);
    this.ttl = Number(granted.ttl_ms);
    this.asked = asked;
    this.length = (Number(granted.until_us) / 1000) * trust;
  }

  /** For how many milliseconds the lock is still held, or 0. */
  remaining() {
    if (this.ended) return 0;
    return Math.max(0, this.asked.at + this.length - now() - slept(this.asked.ahead));
  }

  /** Takes the answer to a confirmation. */
  confirmed({ status, body }, asked) {
    if (status === 200) {
      // The window that has ended is not opened again: others may have acted on it.
      if (this.remaining() > 0) {
        this.asked = asked;
        this.length = (Number(JSON.parse(body).until_us) / 1000) * this.trust;
      }
    } else if (status === 404 || status === 410) {
      this.lose(fromAnswer(status, body).message);
    }
  }

  /** Takes a line of the stream. */
  read(line) {
    const told = JSON.parse(line);
    if (told.event === 'lost') this.lose(told.message ?? told.reason, told);
    else if (told.event === 'released' || told.event === 'error') {
      this.lose(told.message ?? 'the server released the lock', told);
    }
  }

  lose(message, details) {
    if (this.ended) return;
    this.ended = true;
    this.lost = new Lost(String(message), { details });
  }
}

/** What a line before the grant says: the lock is held, or not yet (`undefined`), or an error is thrown. */
export function firstLine(line, asked, onWaiting, trust) {
  const told = JSON.parse(line);
  if (told.event === 'granted') return new Window(told, asked, trust);
  if (told.event === 'waiting') {
    onWaiting?.({ ahead: told.ahead, behind: told.behind ?? undefined });
    return undefined;
  }
  if (told.event === 'lost') throw fromDetails({ ...told, kind: 'lost' }, 410);
  throw fromDetails(told, Number(told.status ?? 500));
}

/** Whether a stream says that its hold has ended as the client asked. Throws what it says instead. */
export function released(lines) {
  for (const line of lines) {
    if (line === '{"event":"released"}') return true;
    const told = JSON.parse(line);
    if (told.event === 'lost') throw new Lost(String(told.message ?? told.reason), { details: told });
    if (told.event === 'error') throw fromDetails(told, Number(told.status ?? 500));
  }
  return false;
}
