// node-redlock, on one server or several that vote.
import { createRequire } from "node:module";
import { main } from "./driver.mjs";

const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

main((servers) => {
  const clients = servers.map((server) => {
    const [host, port] = server.split(":");
    return new Redis({ host, port: Number(port) });
  });
  // As often as it takes: it gives up after ten tries otherwise.
  const patient = new Redlock(clients, { retryCount: -1 });
  const once = new Redlock(clients, { retryCount: 0 });
  return {
    lock: (name) => patient.acquire([name], 30_000),
    attempt: async (name) => {
      try {
        await once.acquire([name], 30_000);
        return true;
      } catch (error) {
        if (error instanceof ExecutionError) return false;
        throw error;
      }
    },
  };
});
