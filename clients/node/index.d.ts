/** Milliseconds, or text with a unit such as `'15m'`. */
export type Time = number | string;

export interface LockOptions {
  /** How long to wait in the queue: 0 only tries; without it, for ever. */
  wait?: Time;
  ttl?: Time;
  owner?: string;
  label?: string;
  maxHold?: Time;
}

export interface AcquireOptions {
  wait?: Time;
  /** Leaves the queue when it is aborted. */
  signal?: AbortSignal;
  /** Called with the place in the queue, first and whenever it changes. */
  onWaiting?: (place: { ahead: number; behind?: string }) => void;
}

export interface ConnectOptions {
  /** The Unix socket of a server that runs already, or `tcp:HOST:PORT`, or `https://HOST:PORT`. */
  socket?: string;
  /** The token of a server on TCP. */
  token?: string;
  /** A file with the certificates that signed that of the server; else those that Node trusts. */
  ca?: string;
  /** For all locks of this client. */
  ttl?: Time;
  label?: string;
}

/**
 * Connects to a store, by its URL, through a private server that ends with this program. With `socket`, or without a URL
 * and with `TIDELOCK_SOCKET` in the environment, connects to a server that runs already.
 */
export function connect(url: string, options?: Omit<ConnectOptions, 'socket'>): Promise<Locks>;
export function connect(options?: ConnectOptions): Promise<Locks>;

export class Locks implements AsyncDisposable {
  private constructor();
  mutex(name: string, options?: LockOptions): Lock;
  shared(name: string, options?: LockOptions): Lock;
  permits(name: string, count: number, options: LockOptions & { of: number }): Lock;
  lockAll(names: readonly string[], options?: Omit<LockOptions, 'owner'>): Lock;
  election(name: string, options?: Pick<LockOptions, 'ttl' | 'label' | 'wait'> & { advertise?: string }): Election;
  once(
    name: string,
    options: Pick<LockOptions, 'ttl' | 'label'> & { every?: Time; slot?: string; retryFailed?: boolean },
  ): Once;
  look(name: string): Promise<LockView>;
  lookAll(prefix?: string): Promise<LockView[]>;
  evict(name: string, claim: string, reason?: string): Promise<boolean>;
  acquireTicket(name: string, options: Omit<LockOptions, 'maxHold'> & { ttl: Time }): Promise<Ticket>;
  renewTicket(ticket: Ticket | string): Promise<Ticket>;
  releaseTicket(ticket: Ticket | string): Promise<void>;
  stock(item: string): Stock;
  abilities(): Promise<unknown>;
  /** The process of the private server, if there is one. */
  readonly serverPid: number | undefined;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Lock {
  protected constructor();
  lock(options?: AcquireOptions): Promise<Held>;
  tryLock(): Promise<Held | undefined>;
  run<T>(work: (held: Held) => T | Promise<T>, options?: AcquireOptions): Promise<T>;
}

export class Held implements AsyncDisposable {
  protected constructor();
  /** The fencing token, larger than that of every earlier holder. */
  readonly token: bigint;
  /** The tokens of `lockAll`, in the order of the names. */
  readonly tokens: readonly bigint[];
  /** Fires when the lock is lost, with the `Lost` error as its reason. */
  readonly signal: AbortSignal;
  readonly lost: Lost | undefined;
  isHeld(): boolean;
  /** For how many milliseconds the lock is held even if the server and the store are gone. */
  remaining(): number;
  /** Throws `Lost` unless the lock is held. */
  check(): void;
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Election extends Lock {
  campaign(options?: AcquireOptions): Promise<Held>;
  lead<T>(work: (held: Held) => T | Promise<T>, options?: AcquireOptions): Promise<T>;
  leader(): Promise<Leader | undefined>;
  watch(options?: { signal?: AbortSignal }): AsyncGenerator<Leader | undefined, void, void>;
}

export class Once {
  private constructor();
  start(options?: { signal?: AbortSignal }): Promise<Turn>;
  run<T>(work: (turn: Turn) => T | Promise<T>, options?: { signal?: AbortSignal }): Promise<T>;
}

export class Turn extends Held {
  readonly slot: string | undefined;
  done(): Promise<void>;
  failed(): Promise<void>;
}

export type Sale = 'taken' | 'reserved' | 'sold_out' | 'returned' | 'closed';

export class Stock {
  private constructor();
  open(amount: number, options?: { segments?: number }): Promise<Stock>;
  take(order: string, amount?: number): Promise<Sale>;
  reserve(order: string, amount?: number, ttl?: Time): Promise<Sale>;
  confirm(order: string): Promise<boolean>;
  giveBack(order: string): Promise<boolean>;
  remaining(): Promise<number>;
}

export interface Claim {
  claim: string;
  label: string;
  owner?: string;
  share: string;
  token?: bigint;
  /** Milliseconds. */
  age: number;
  expiresIn: number;
}

export interface LockView {
  name: string;
  token?: bigint;
  holders: Claim[];
  waiters: Claim[];
}

export interface Leader {
  label: string;
  advertised?: string;
  token: bigint;
  leadsFor: number;
}

export interface Ticket {
  text: string;
  token: bigint;
  remaining: number;
  toString(): string;
}

export class TidelockError extends Error {
  readonly kind: string;
  readonly retryable: boolean;
  readonly details: Record<string, unknown>;
}
export class Busy extends TidelockError {}
export class TimedOut extends TidelockError {}
export class Lost extends TidelockError {}
export class Unavailable extends TidelockError {}
export class Refused extends TidelockError {}
export class NotFound extends TidelockError {}
export class TooMany extends TidelockError {}
export class NotNow extends TidelockError {}
export class DoneAlready extends NotNow {}
export class RunningNow extends NotNow {}
