// The scenarios that the clients of all languages play.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { redis, Stage } from './stage.js';

const { scenarios } = JSON.parse(readFileSync(new URL('../../scenarios.json', import.meta.url), 'utf8'));
const folder = mkdtempSync(join(tmpdir(), 'tidelock-stores-'));
const stores = {};

before(async () => {
  stores.one = await redis(join(folder, 'one'));
  stores.other = await redis(join(folder, 'other'));
});

after(async () => {
  for (const store of Object.values(stores)) await store.kill();
  rmSync(folder, { recursive: true, force: true });
});

for (const scenario of scenarios) {
  test(scenario.name, async () => {
    const stage = new Stage(stores);
    try {
      await stage.play(scenario);
    } finally {
      stores.one.signal('SIGCONT');
      await stage.end();
    }
  });
}
