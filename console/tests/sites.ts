import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, type Browser, type Page } from '@playwright/test';
import { front } from './front';

export const BIN = process.env.FARSIDE_BIN ?? join(import.meta.dirname, '../../target/debug');
export const PASSWORD = 'correct horse battery';
const READY_WITHIN = 60_000;

/** Directory for the sites of a test, taken away at its end. */
export function scratch(): string {
  return mkdtempSync(join(tmpdir(), 'farside-console-test.'));
}

export const gone = (directory: string) => rmSync(directory, { recursive: true, force: true });

async function until<T>(what: string, look: () => T | undefined | false): Promise<T> {
  const end = Date.now() + READY_WITHIN;
  for (;;) {
    const found = look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A real daemon, on loopback. */
export class Site {
  private daemon?: ChildProcess;
  /** Where peers meet it: once chosen, it stays. */
  private peers = '127.0.0.1:0';
  /** Where its API is, likewise. */
  private api = '';
  readonly dir: string;
  url = '';

  constructor(
    root: string,
    readonly name: string,
  ) {
    this.dir = join(root, name);
    mkdirSync(this.dir);
    writeFileSync(join(this.dir, 'farside.toml'), '[api]\nlisten = "127.0.0.1:0"\n');
  }

  async start(): Promise<this> {
    const published = join(this.dir, 'api.addr');
    rmSync(published, { force: true });
    const listen = this.api ? ['--api-listen', this.api] : [];
    this.daemon = spawn(join(BIN, 'farsided'), ['--data-dir', this.dir, '--name', this.name, '--peer-listen', this.peers, '--http', 'off', ...listen], {
      stdio: 'ignore',
    });
    this.api = await until('the API', () => existsSync(published) && readFileSync(published, 'utf8').trim());
    this.url ||= await front(`https://${this.api}`);
    this.peers = await until('where peers meet it', () => existsSync(join(this.dir, 'peer.addr')) && readFileSync(join(this.dir, 'peer.addr'), 'utf8').trim());
    await until('the control socket', () => {
      try {
        this.farside('pool', 'list');
        return true;
      } catch {
        return false;
      }
    });
    return this;
  }

  /** Ends it: gently, unless another signal is named. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const daemon = this.daemon;
    if (!daemon || daemon.exitCode !== null) return;
    const ended = new Promise((done) => daemon.once('exit', done));
    daemon.kill(signal);
    await ended;
  }

  /** The command line at the site itself: for what comes before the console, and for whoever acts beside it. */
  farside(...words: string[]): string {
    return execFileSync(join(BIN, 'farside'), words, { env: { ...process.env, FARSIDE_SOCKET: join(this.dir, 'farside.sock') }, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  }

  account(name: string, role: string) {
    const file = join(this.dir, `${name}.password`);
    writeFileSync(file, `${PASSWORD}\n`, { mode: 0o600 });
    this.farside('account', 'create', name, '--role', role, '--password-file', file);
  }

  /** Joins the other site, by an invitation of that. */
  async pairWith(other: Site) {
    const code = join(this.dir, 'code');
    writeFileSync(code, other.farside('peer', 'invite'), { mode: 0o600 });
    this.farside('peer', 'join', readFileSync(join(other.dir, 'peer.addr'), 'utf8').trim(), '--code-file', code);
    await until('a session', () => other.farside('peer', 'list').includes(' connected'));
  }

  /** What a host does: bytes into a volume. */
  write(volume: string, bytes: Buffer) {
    const file = join(this.dir, 'written');
    writeFileSync(file, bytes);
    execFileSync('nbdcopy', ['--flush', file, `nbd+unix:///${volume}?socket=${join(this.dir, 'nbd.sock')}`]);
  }

  read(volume: string): Buffer {
    const file = join(this.dir, 'read');
    rmSync(file, { force: true });
    execFileSync('nbdcopy', [`nbd+unix:///${volume}?socket=${join(this.dir, 'nbd.sock')}`, file]);
    return readFileSync(file);
  }
}

/** What the browser's console says that is wrong. */
export function complaints(page: Page): string[] {
  const said: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') said.push(`${page.url()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => said.push(`${page.url()}: ${error.message}`));
  return said;
}

export async function logIn(page: Page, url: string, name = 'admin', password = PASSWORD) {
  await page.goto(url);
  await page.getByLabel('Account').fill(name);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Log in' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Overview' })).toBeVisible();
}

/** A page of a browser of its own, logged in. */
export async function at(browser: Browser, site: Site, name = 'admin'): Promise<Page> {
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true, permissions: ['clipboard-read', 'clipboard-write'] })).newPage();
  await logIn(page, site.url, name);
  return page;
}
