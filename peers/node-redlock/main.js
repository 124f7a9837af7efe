// node-redlock, on one server or several that vote.
import { createRequire } from "node:module";
import { lease, main } from "./driver.mjs";

const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

main((servers) => {
  const clients = servers.map((server) => {
    const [host, port] = server.split(":");
    return new Redis({ host, port: Number(port) });
  });
  // As often as it takes: it gives up after ten tries otherwise. Between two tries it keeps what it got on too few of
  // several servers, and gives that back only when it gives up: there it has to, and begins again.
  const patient = new Redlock(clients, clients.length > 1 ? {} : { retryCount: -1 });
  const once = new Redlock(clients, { retryCount: 0 });
  return {
    lock: async (name) => {
      for (;;) {
        try {
          return await patient.acquire([name], lease);
        } catch (error) {
          if (!(error instanceof ExecutionError)) throw error;
        }
      }
    },
    // `using` renews as long as its routine runs.
    kept: (name) =>
      new Promise((resolve, reject) => {
        const routine = () =>
          new Promise((end) => resolve({ release: () => (end(), using) }));
        const using = patient.using([name], lease, routine);
        using.catch(reject);
      }),
    attempt: async (name) => {
      try {
        await once.acquire([name], lease);
        return true;
      } catch (error) {
        if (error instanceof ExecutionError) return false;
        throw error;
      }
    },
  };
});
