// What can go wrong. Every error has a kind, a sentence for people, and whether to try again.

export class TidelockError extends Error {
  static kind = 'internal';
  static retryable = false;

  constructor(message, { kind, retryable, details, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.kind = kind ?? new.target.kind;
    this.retryable = retryable ?? new.target.retryable;
    this.details = details ?? {};
  }
}

/** Another client holds the lock, and the call does not wait. */
export class Busy extends TidelockError {
  static kind = 'busy';
  static retryable = true;
}

/** The lock was not acquired within `wait`. */
export class TimedOut extends TidelockError {
  static kind = 'timed_out';
  static retryable = true;
}

/** The lock is not held any more: stop the work that it protects. */
export class Lost extends TidelockError {
  static kind = 'lost';
}

/** The store or the server did not answer. What was asked may have been done or not. */
export class Unavailable extends TidelockError {
  static kind = 'unavailable';
  static retryable = true;
}

/** The request or the configuration is wrong, or the program may not do this. */
export class Refused extends TidelockError {
  static kind = 'bad_request';
}

export class NotFound extends TidelockError {
  static kind = 'not_found';
}

/** A limit of the server is reached. */
export class TooMany extends TidelockError {
  static kind = 'too_many';
  static retryable = true;
}

/** A job that runs once per period has run, or runs at this moment elsewhere. */
export class NotNow extends TidelockError {
  static kind = 'not_now';
}

export class DoneAlready extends NotNow {
  static kind = 'done_already';
}

export class RunningNow extends NotNow {
  static kind = 'running_now';
}

const BY_KIND = new Map(
  [Busy, TimedOut, Lost, Unavailable, NotFound, TooMany, DoneAlready, RunningNow].map((each) => [each.kind, each]),
).set('no_leader', NotFound);
// A kind that this client does not know is told by its status.
const BY_STATUS = new Map([
  [404, NotFound],
  [408, TimedOut],
  [409, Busy],
  [410, Lost],
  [429, TooMany],
  [503, Unavailable],
]);

/** The error that a line or an answer of the server stands for. */
export function fromDetails(details, status) {
  const kind = String(details.kind ?? 'internal');
  const known =
    BY_KIND.get(kind) ?? BY_STATUS.get(status) ?? (status >= 400 && status < 500 ? Refused : TidelockError);
  return new known(String(details.message ?? details.reason ?? kind), { kind, retryable: details.retryable, details });
}

/** The error that an HTTP answer stands for, also if it is not one of ours. */
export function fromAnswer(status, body) {
  let details;
  try {
    details = JSON.parse(body);
  } catch {
    details = undefined;
  }
  if (details === null || typeof details !== 'object') {
    details = { kind: 'http', message: `the server answered ${status}: ${body.trim() || 'nothing'}` };
  }
  return fromDetails(details, status);
}
