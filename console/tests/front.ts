import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, request } from 'node:https';
import { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// `DIST=1`: the pages are those of `dist/` as it is now, and not those that were compiled into the daemon. So a change of the console
// is tried without a build of the daemon.
const DIST = process.env.DIST ? join(import.meta.dirname, '../dist') : null;

/** Where the pages of a daemon are met: at the daemon itself, or at a server before it that has newer ones. */
export async function front(url: string): Promise<string> {
  if (!DIST) return url;
  const files = new Map(
    [...readFileSync(join(DIST, 'files.rs'), 'utf8').matchAll(/name: "([^"]+)", media_type: "([^"]+)"/g)].map(([, name, type]) => [`/${name}`, { type: type!, bytes: readFileSync(join(DIST, `${name}.br`)) }]),
  );
  const policy = /const POLICY: &str = "([^;].*?)";/s.exec(readFileSync(join(import.meta.dirname, '../../crates/farside-daemon/src/http/console.rs'), 'utf8'))![1]!.replace(/\\\s+/g, '');
  const server = createServer(certificate(), (asked, answer) => {
    const path = (asked.url ?? '/').split('?')[0]!;
    if (!path.startsWith('/api/') && asked.method === 'GET') {
      const file = files.get(path) ?? files.get('/index.html')!;
      answer.writeHead(200, { 'content-type': file.type, 'content-encoding': 'br', 'content-security-policy': policy, 'cache-control': path.startsWith('/assets/') ? 'max-age=31536000' : 'no-cache' });
      answer.end(file.bytes);
      return;
    }
    const headers = { ...asked.headers, host: new URL(url).host, ...(asked.headers.origin && { origin: url }) };
    const passed = request(url + asked.url, { method: asked.method, headers, rejectUnauthorized: false }, (came) => {
      answer.writeHead(came.statusCode ?? 502, came.headers);
      came.pipe(answer);
      came.on('error', () => answer.destroy());
      came.on('aborted', () => answer.destroy());
    });
    // A daemon that is gone is gone here, too.
    passed.on('error', () => asked.socket.destroy());
    answer.on('close', () => passed.destroy());
    asked.pipe(passed);
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  server.unref();
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

let made: { key: string; cert: string } | undefined;
function certificate() {
  if (made) return made;
  const dir = mkdtempSync(join(tmpdir(), 'farside-front.'));
  const [key, cert] = [join(dir, 'key'), join(dir, 'cert')];
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1', '-subj', '/CN=127.0.0.1', '-keyout', key, '-out', cert], { stdio: 'ignore' });
  if (!existsSync(cert)) throw new Error('openssl has made no certificate');
  made = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  rmSync(dir, { recursive: true });
  return made;
}
