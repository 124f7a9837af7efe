// A server with TLS, as one on another machine is used.
import assert from 'node:assert/strict';
import { copyFileSync, chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect, Unavailable } from '../src/index.js';
import { BINARY, Process } from './stage.js';

const TOKEN = '0123456789abcdef0123456789abcdef';
const certificates = process.env.TIDELOCK_TEST_CERTIFICATES;
const skip = certificates === undefined ? 'cargo xtask test makes certificates' : false;

test('locks are held over TLS, and strangers are refused', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidelock-tls-'));
  const [token, key] = [join(folder, 'token'), join(folder, 'key')];
  writeFileSync(token, TOKEN);
  copyFileSync(join(certificates, 'server.key'), key);
  for (const file of [token, key]) chmodSync(file, 0o600);
  const server = new Process(BINARY, [
    ...['serve', '--listen', 'tcp:127.0.0.1:0', '--url', `file:${folder}/locks`, '--token-file', token],
    ...['--tls-cert', join(certificates, 'server.crt'), '--tls-key', key, '--until-stdin-closes'],
  ]);
  try {
    const socket = (await server.hear()).listen.replace('tcp:', 'https://');
    const ca = join(certificates, 'ca.crt');
    const locks = await connect({ socket, token: TOKEN, ca });
    for (let i = 0; i < 3; i++) {
      const held = await locks.mutex('job').lock();
      assert.ok(held.isHeld());
      assert.equal(await locks.mutex('job').tryLock(), undefined);
      await held.release();
    }
    await locks.close();
    await assert.rejects(connect({ socket, token: TOKEN, ca: join(certificates, 'foreign-ca.crt') }), Unavailable);
    await assert.rejects(connect({ socket, token: 'wrong'.repeat(8), ca }), { kind: 'unauthorized' });
    await assert.rejects(connect({ socket: socket.replace('https://', 'tcp:'), token: TOKEN }));
  } finally {
    server.child.kill('SIGKILL');
    await server.exit;
    rmSync(folder, { recursive: true, force: true });
  }
});
