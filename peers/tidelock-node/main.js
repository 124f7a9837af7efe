// tidelock for Node, with the private server that `connect` starts.
import { lease, main } from "./driver.mjs";
import { connect } from "./tidelock/index.js";

await main(([server]) => {
  const connected = connect(`redis://${server}`, { ttl: lease });
  const locks = new Map();
  const of = async (name) => {
    if (!locks.has(name)) locks.set(name, (await connected).mutex(name));
    return locks.get(name);
  };
  return {
    lock: async (name) => (locks.get(name) ?? (await of(name))).lock(),
    kept: async (name) => (await of(name)).lock(),
    attempt: async (name) => (await (await of(name)).tryLock()) !== undefined,
  };
});
