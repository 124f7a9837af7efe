// HTTP/1.1 as bytes: requests are written and answers are read here, without a socket. The module `http` makes several
// objects and events for each answer, which cost more than the round trip.

/** A name as one segment of a path. */
export const segment = (name) =>
  name === '.' || name === '..'
    ? name.replaceAll('.', '%2E')
    : encodeURIComponent(name).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

/** A whole request, as text. */
export function request(method, path, body, token) {
  const extra = token ? `Authorization: Bearer ${token}\r\n` : '';
  if (body === undefined) return `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${extra}\r\n`;
  const text = JSON.stringify(body);
  return (
    `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${extra}Content-Type: application/json\r\n` +
    `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
  );
}

/**
 * A request whose body stays open, as text: what ends the hold is sent behind it, on the same connection. The text is
 * plain: in JSON, other characters can be written so.
 */
export function opened(path, body, token) {
  const extra = token ? `Authorization: Bearer ${token}\r\n` : '';
  const line = JSON.stringify(body).replace(/[\x7f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return (
    `POST ${path} HTTP/1.1\r\nHost: localhost\r\n${extra}Content-Type: application/x-ndjson\r\n` +
    `Transfer-Encoding: chunked\r\n\r\n${chunk(line)}`
  );
}

const chunk = (line) => `${(line.length + 1).toString(16)}\r\n${line}\n\r\n`;

/** How a hold is ended: the last line of the body, and the end of the body. */
export const ENDINGS = Object.fromEntries(
  ['release', 'done', 'failed'].map((end) => [end, `${chunk(JSON.stringify({ end }))}0\r\n\r\n`]),
);

/** What a stream says when its hold was released, and its end, which comes with it or after it. */
const RELEASED = chunk('{"event":"released"}');
const END = '0\r\n\r\n';
const RELEASED_AND_END = RELEASED + END;
/** What this many bytes do not end is not from a server of ours. */
const LONGEST_HEAD = 65_536;
const LONGEST_LINE = 1_048_576;

/** How a hold is ended whose body does not stay open: method, path and body. */
export const endElsewhere = (hold, ending) =>
  ending === 'release' ? ['DELETE', `/v1/holds/${hold}`] : ['POST', `/v1/holds/${hold}/${ending}`, {}];

const SIZE = /^[0-9a-f]+$/i;

/** Reads answers from bytes, one after the other. A stream is read line by line as it comes. */
export class Reader {
  // Bytes are kept as latin1 text, in which one character is one byte, and lengths can be counted.
  raw = '';
  text = '';
  /** 0: the head of the next answer has not come yet. */
  status = 0;
  /** Bytes of a body that has a length; -1: it comes in chunks. */
  left = 0;
  /** Whether the connection stays open after this answer. */
  keeps = true;
  /** Whether the body has ended. */
  ended = true;
  /** The head of the last stream. */
  known = undefined;

  feed(data, length = data.length) {
    const text = data.latin1Slice(0, length);
    this.raw = this.raw === '' ? text : this.raw + text;
  }

  /**
   * The line that a stream begins with, if all that is here is a head as that of the last stream and one whole line.
   * Almost all grants come so. Otherwise nothing is changed.
   */
  soleLine() {
    const { raw, known } = this;
    if (this.status !== 0 || known === undefined || !raw.startsWith(known)) return undefined;
    const start = raw.indexOf('\r\n', known.length) + 2;
    const end = raw.length - 3;
    // The first line has to end where the data ends.
    if (start < 2 || raw.indexOf('\n', start) !== end || !raw.endsWith('\r\n')) return undefined;
    const size = raw.slice(known.length, start - 2);
    if (!SIZE.test(size) || Number.parseInt(size, 16) !== end + 1 - start) return undefined;
    this.status = 200;
    this.left = -1;
    this.keeps = true;
    this.ended = false;
    this.text = '';
    this.raw = '';
    return utf8(raw.slice(start, end));
  }

  /** Whether all that is here is that the hold of the stream was released. Otherwise nothing is changed. */
  saysReleased() {
    if (this.text !== '' || this.ended || this.left !== -1) return false;
    if (this.raw === RELEASED_AND_END) {
      this.ended = true;
      this.status = 0;
    } else if (this.raw !== RELEASED) {
      return false;
    }
    this.raw = '';
    return true;
  }

  /** Whether the head of the answer is here; then `status` is set. */
  head() {
    if (this.status !== 0) return true;
    const end = this.raw.indexOf('\r\n\r\n');
    if (end < 0) {
      if (this.raw.length > LONGEST_HEAD) throw new Error('the head of the answer does not end');
      return false;
    }
    const whole = this.raw.slice(0, end + 4);
    const head = whole.slice(0, end).toLowerCase();
    this.raw = this.raw.slice(end + 4);
    this.status = Number(head.slice(9, 12));
    const length = head.indexOf('\r\ncontent-length:');
    if (length >= 0) this.left = Number.parseInt(head.slice(length + 17), 10);
    else this.left = head.includes('\r\ntransfer-encoding: chunked') ? -1 : 0;
    if (!(this.status >= 100) || !(this.left >= -1)) throw new Error('the answer cannot be read');
    if (length >= 0 && this.left < 0) throw new Error('the answer cannot be read');
    this.keeps = !head.includes('\r\nconnection: close');
    this.ended = this.left === 0;
    this.text = '';
    if (this.left === -1 && this.keeps && this.status === 200) this.known = whole;
    return true;
  }

  /** Moves what has come of the body to `text`. */
  advance() {
    if (this.ended) return;
    if (this.left >= 0) {
      const part = this.raw.slice(0, this.left);
      this.raw = this.raw.slice(part.length);
      this.left -= part.length;
      this.text += part;
      this.ended = this.left === 0;
      return;
    }
    for (;;) {
      const end = this.raw.indexOf('\r\n');
      if (end < 0) {
        if (this.raw.length > LONGEST_HEAD) throw new Error('the size of a chunk does not end');
        return;
      }
      const size = Number.parseInt(this.raw.slice(0, end), 16);
      if (!(size >= 0)) throw new Error('a chunk has no size');
      const stop = end + 2 + size;
      if (this.raw.length < stop + 2) return;
      if (!this.raw.startsWith('\r\n', stop)) throw new Error('a chunk is longer than its size');
      this.text += this.raw.slice(end + 2, stop);
      this.raw = this.raw.slice(stop + 2);
      if (size === 0) {
        this.ended = true;
        return;
      }
    }
  }

  /** The whole answer, once it is here. */
  body() {
    if (!this.head()) return undefined;
    this.advance();
    if (!this.ended) return undefined;
    const status = this.status;
    this.status = 0;
    return { status, body: utf8(this.text) };
  }

  /** The lines of a stream that have come since the last call. */
  lines() {
    this.advance();
    const end = this.text.lastIndexOf('\n');
    if (end < 0) {
      if (this.text.length > LONGEST_LINE || this.raw.length > 2 * LONGEST_LINE) throw new Error('a line does not end');
      return [];
    }
    const whole = this.text.slice(0, end);
    this.text = this.text.slice(end + 1);
    return utf8(whole).split('\n').filter(Boolean);
  }

  /** Whether the stream has ended; then the next answer may be read. */
  endOfStream() {
    this.lines();
    if (this.ended) this.status = 0;
    return this.ended;
  }
}

/** Text from bytes that were kept as latin1; most is plain, and then there is nothing to do. */
// eslint-disable-next-line no-control-regex
const utf8 = (text) => (/^[\x00-\x7f]*$/.test(text) ? text : Buffer.from(text, 'latin1').toString('utf8'));
