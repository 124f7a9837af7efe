// What people write, for `tsc --noEmit`: it is checked and never run.
import { connect, Lost, NotNow, type Held, type Leader } from 'tidelock';

await using locks = await connect('redis://localhost', { ttl: '30s' });
{
  await using held = await locks.mutex('orders/42').lock({ wait: 5000, signal: AbortSignal.timeout(1000) });
  const token: bigint = held.token;
  held.signal.addEventListener('abort', () => console.log((held.signal.reason as Lost).kind));
  console.log(token, held.isHeld(), held.remaining());
}
const text: string = await locks.mutex('report').run(async (held: Held) => `${held.token}`);
const maybe: Held | undefined = await locks.shared('orders').tryLock();
await maybe?.release();
await locks.permits('render', 2, { of: 5 }).run(() => 1);
const both = await locks.lockAll(['a', 'b']).lock();
const tokens: readonly bigint[] = both.tokens;
try {
  await locks.once('report', { every: '15m' }).run((turn) => turn.slot);
} catch (error) {
  if (!(error instanceof NotNow)) throw error;
}
for await (const leader of locks.election('scheduler', { advertise: 'http://a' }).watch()) {
  const known: Leader | undefined = leader;
  console.log(known?.label);
}
const ticket = await locks.acquireTicket('deploy', { ttl: '90s' });
await locks.releaseTicket(await locks.renewTicket(ticket));
const stock = await locks.stock('10001').open(100, { segments: 5 });
console.log(text, tokens, (await stock.take('order-1')) === 'taken');
// @ts-expect-error: permits need to know of how many
locks.permits('render', 2);
