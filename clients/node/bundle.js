// Puts the binary into the package before `npm pack`, and takes it out of this folder afterwards.
import { chmodSync, copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('bin', import.meta.url));
if (process.argv[2] === '--remove') {
  rmSync(folder, { recursive: true, force: true });
} else {
  const binary = process.env.TIDELOCK_BINARY;
  if (!binary || !existsSync(binary)) {
    console.error('set TIDELOCK_BINARY to the tidelock binary that the package shall carry');
    process.exit(1);
  }
  mkdirSync(folder, { recursive: true });
  copyFileSync(binary, `${folder}/tidelock`);
  chmodSync(`${folder}/tidelock`, 0o755);
}
