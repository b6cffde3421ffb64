import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { front } from './front';
import { BIN } from './sites';

/** The sites of `make demo-console`: mirrors in every state. */
export class Demo {
  private script!: ChildProcess;
  readonly sites = new Map<string, { url: string; password: string }>();

  async start(root: string): Promise<this> {
    const ready = join(root, 'ready');
    let said = '';
    this.script = spawn(join(import.meta.dirname, '../../scripts/demo-console'), {
      env: { ...process.env, FARSIDE_BIN: BIN, READY: ready },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.script.stderr?.on('data', (text) => (said += text));
    this.script.stdout?.on('data', () => undefined);
    while (!existsSync(ready)) {
      if (this.script.exitCode !== null) throw new Error(`demo-console ended: ${said}`);
      await new Promise((done) => setTimeout(done, 100));
    }
    for (const line of readFileSync(ready, 'utf8').trim().split('\n')) {
      const [name, url, file] = line.split(' ') as [string, string, string];
      this.sites.set(name, { url: await front(url), password: readFileSync(file, 'utf8').trim() });
    }
    return this;
  }

  async stop() {
    if (this.script.exitCode !== null) return;
    const ended = new Promise((done) => this.script.once('exit', done));
    this.script.kill('SIGTERM');
    await ended;
  }
}
