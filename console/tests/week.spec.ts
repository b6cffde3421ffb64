import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request as ask, type Server } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, test, type CDPSession, type Page } from '@playwright/test';
import { gone, logIn, scratch, Site } from './sites';

// A week at a site with twenty mirrors that update each minute, in two pages that nobody closes. The daemon and its documents are
// real, and so is what the pages make of them. What changes comes from here: in front of the daemon stands a server that answers
// its lists with twenty mirrors in place of one, and its stream with a week of events as fast as the pages read them.

const MIRRORS = 20;
const DAYS = 7;
const MINUTES = 24 * 60;
/** The pages' timers run so many times as fast: lists are drawn and read again more often while the week lasts two minutes. */
const FASTER = 20;
const MEGABYTE = 1e6;

type Thing = Record<string, unknown>;

/** What stands before the daemon. */
class Week {
  private server!: Server;
  private readonly streams = new Set<ServerResponse>();
  private mirror!: Thing;
  private record!: Thing;
  private peer!: Thing;
  private minute = 0;
  private readonly alarms = new Map<string, Thing>();
  private mark = '';
  private id = 0;
  events = 0;
  asked = 0;
  url = '';

  constructor(private readonly site: Site) {}

  async start(): Promise<this> {
    const ours = readFileSync(join(this.site.dir, 'api-certificate.pem'));
    this.server = createServer({ key: ours, cert: ours }, (request, response) => void this.answer(request, response));
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    this.url = `https://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
    return this;
  }

  async stop() {
    for (const stream of this.streams) stream.destroy();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  /** Takes documents of the daemon for its own. */
  takes(mirror: Thing, record: Thing, peer: Thing) {
    [this.mirror, this.record, this.peer] = [mirror, record, peer];
  }

  followers = () => this.streams.size;

  private async answer(request: IncomingMessage, response: ServerResponse) {
    this.asked += 1;
    if (request.url === '/api/v1/events') return this.follow(response);
    if (this.mirror && request.url === '/api/v1/mirrors') return json(response, this.mirrors());
    if (this.mirror && request.url?.startsWith('/api/v1/alarms')) return json(response, [...this.alarms.values()]);
    if (this.mirror && request.url?.startsWith('/api/v1/history')) return json(response, this.records());
    const passed = ask(`${this.site.url}${request.url}`, { method: request.method, headers: request.headers, rejectUnauthorized: false });
    passed.on('response', (said) => {
      response.writeHead(said.statusCode ?? 502, said.headers);
      said.pipe(response);
    });
    passed.on('error', () => response.destroy());
    request.pipe(passed);
  }

  private follow(response: ServerResponse) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.write(`id: week-${this.id}\nevent: reset\ndata: {}\n\n`);
    this.streams.add(response);
    response.on('close', () => this.streams.delete(response));
  }

  /** A mirror as its list has it in this minute. */
  private one(index: number, state: string): Thing {
    const name = `vault/volume-${String(index).padStart(2, '0')}`;
    return {
      ...this.mirror,
      id: `00000000-0000-7000-8000-${String(index).padStart(12, '0')}`,
      name,
      destination: name,
      source: `south:tank/volume-${index}`,
      state,
      lag_seconds: (index * 7 + this.minute) % 80,
      objective_seconds: 60,
      current_snapshot: (index === 0 && this.mark) || `mirror-${index}-${this.minute}`,
      content_root: `${this.minute}`.padStart(32, '0'),
    };
  }

  private mirrors = () => Array.from({ length: MIRRORS }, (_, index) => this.one(index, 'mirrored'));

  /** The transfers that a daemon remembers: as many at the end as at the beginning. */
  private records() {
    return Array.from({ length: 200 }, (_, back) => {
      const ended = Date.now() - back * 60_000;
      return {
        ...this.record,
        id: `00000000-0000-7000-9000-${String(1e6 + this.minute - back).padStart(12, '0')}`,
        started_at: new Date(ended - 2_000).toISOString(),
        ended_at: new Date(ended).toISOString(),
        incremental: `mirror-0-${this.minute - back}`,
        changed_bytes: 4096 * (1 + ((this.minute + back) % 100)),
      };
    });
  }

  private event(kind: string, thing: unknown): string {
    this.events += 1;
    this.id += 1;
    return `id: week-${this.id}\nevent: ${kind}\ndata: ${JSON.stringify(thing)}\n\n`;
  }

  private operation = (id: string, state: string) => ({
    id,
    kind: 'update',
    phase: null,
    volume: 'vault/volume-00',
    state,
    started_at: new Date().toISOString(),
    ended_at: null,
    transfer: null,
    session_lost_seconds: null,
    record: null,
    error: null,
  });

  private raised(id: string, subject: string, severity: string, message: string): string {
    const alarm = { id, kind: 'mirror-late', subject, severity, raised_at: new Date().toISOString(), cleared_at: null, acknowledged: false, message, hint: 'look at the link' };
    this.alarms.set(id, alarm);
    return this.event('alarm', alarm);
  }

  private over(id: string): string {
    this.alarms.delete(id);
    return this.event('gone', { kind: 'alarm', key: id });
  }

  /** What a minute brings: each mirror updates, an operation begins and ends, a peer's figures change; each hour an alarm. */
  private *inAMinute(): Generator<string> {
    this.minute += 1;
    for (let index = 0; index < MIRRORS; index++) {
      yield this.event('mirror', this.one(index, 'transferring'));
      yield this.event('mirror', this.one(index, 'transferring'));
      yield this.event('mirror', this.one(index, 'mirrored'));
    }
    const operation = `operation-${this.minute}`;
    for (const state of ['running', 'running', 'done']) yield this.event('operation', this.operation(operation, state));
    yield this.event('gone', { kind: 'operation', key: operation });
    yield this.event('peer', { ...this.peer, rtt_seconds: 0.01 + (this.minute % 100) / 1e4, sent_bytes: 1e6 * this.minute });
    if (this.minute % 60 === 1) yield this.raised(`alarm-${this.minute}`, 'vault/volume-07', 'warning', `late in minute ${this.minute}`);
    if (this.minute % 60 === 45) yield this.over(`alarm-${this.minute - 44}`);
  }

  /** A day, no faster than every page reads it; then each page shows `mark`. */
  async day(mark: string) {
    for (let minute = 0; minute < MINUTES; minute++) {
      const text = [...this.inAMinute()].join('');
      for (const stream of this.streams) if (!stream.write(text)) await once(stream, 'drain');
    }
    this.mark = mark;
    this.tell(this.event('mirror', this.one(0, 'mirrored')) + this.raised('mark', 'vault', 'critical', mark));
  }

  /** Takes away what `day` left to be seen. */
  cleared() {
    this.mark = '';
    this.tell(this.event('mirror', this.one(0, 'mirrored')) + this.over('mark'));
  }

  private tell(text: string) {
    for (const stream of this.streams) stream.write(text);
  }
}

function json(response: ServerResponse, body: unknown) {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

interface Size {
  heap: number;
  nodes: number;
  listeners: number;
}

/** What a page holds once everything that nobody holds any more is gone. */
async function held(cdp: CDPSession): Promise<Size> {
  for (let round = 0; round < 2; round++) {
    await cdp.send('HeapProfiler.collectGarbage');
    await new Promise((done) => setTimeout(done, 100));
  }
  const { usedSize } = (await cdp.send('Runtime.getHeapUsage')) as { usedSize: number };
  const { metrics } = (await cdp.send('Performance.getMetrics')) as { metrics: { name: string; value: number }[] };
  const of = (name: string) => metrics.find((metric) => metric.name === name)!.value;
  return { heap: usedSize, nodes: of('Nodes'), listeners: of('JSEventListeners') };
}

/** The least of some looks: an answer that is just being drawn is in one of them, not in all. */
async function least(cdp: CDPSession): Promise<Size> {
  const looks: Size[] = [];
  for (let look = 0; look < 3; look++) looks.push(await held(cdp));
  const min = (key: keyof Size) => Math.min(...looks.map((size) => size[key]));
  return { heap: min('heap'), nodes: min('nodes'), listeners: min('listeners') };
}

let root: string;
let north: Site;
let south: Site;
let week: Week;
test.beforeAll(async () => {
  root = scratch();
  [north, south] = await Promise.all([new Site(root, 'north').start(), new Site(root, 'south').start()]);
  north.account('admin', 'administrator');
  north.farside('pool', 'create', 'vault', '--path', join(root, 'vault.pool'), '--size', '64M');
  south.farside('pool', 'create', 'tank', '--path', join(root, 'tank.pool'), '--size', '64M');
  south.farside('volume', 'create', 'tank/volume-0', '--size', '8M');
  await north.pairWith(south);
  south.farside('peer', 'allow', 'north', 'tank/volume-0');
  // Of itself it does not update: the real log stays as it is.
  north.farside('mirror', 'create', 'south:tank/volume-0', 'vault/volume-00');
  north.farside('mirror', 'initialize', 'vault/volume-00');
  week = await new Week(north).start();
});
test.afterAll(async () => {
  await week.stop();
  await Promise.all([north.stop(), south.stop()]);
  gone(root);
});

test('pages that stay open for a week of events do not grow', async ({ browser }) => {
  test.setTimeout(600_000);
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const overview = await context.newPage();
  await logIn(overview, week.url);
  const get = async (path: string) => (await (await context.request.get(`${week.url}/api/v1${path}`)).json()) as Thing[];
  const [mirrors, records, peers] = await Promise.all([get('/mirrors'), get('/history?volume=vault/volume-00'), get('/peers')]);
  week.takes(mirrors[0]!, records[0]!, peers[0]!);
  await context.addInitScript((faster) => {
    const [later, again] = [window.setTimeout, window.setInterval];
    window.setTimeout = ((what: TimerHandler, after = 0, ...more: unknown[]) => later(what, after / faster, ...more)) as typeof setTimeout;
    window.setInterval = ((what: TimerHandler, after = 0, ...more: unknown[]) => again(what, after / faster, ...more)) as typeof setInterval;
    // What has been drawn, for the figures that are printed.
    const counter = window as unknown as { drawn: number };
    counter.drawn = 0;
    new MutationObserver(() => (counter.drawn += 1)).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  }, FASTER);

  const one = await context.newPage();
  const pages: Record<string, Page> = { overview, mirror: one };
  await overview.goto(week.url);
  await one.goto(`${week.url}/mirrors/vault/volume-00`);
  await expect(overview.getByRole('link', { name: 'vault/volume-19' }).first()).toBeVisible();
  await expect(one.getByText('Newest point')).toBeVisible();
  await expect.poll(week.followers).toBe(2);
  const cdp: Record<string, CDPSession> = {};
  for (const [name, page] of Object.entries(pages)) {
    cdp[name] = await context.newCDPSession(page);
    await cdp[name].send('Performance.enable');
  }

  const after: Record<string, Size[]> = { overview: [], mirror: [] };
  const began = Date.now();
  for (let day = 1; day <= DAYS; day++) {
    const mark = `end-of-day-${day}`;
    await week.day(mark);
    await expect(overview.getByText(mark, { exact: false }).first()).toBeVisible({ timeout: 60_000 });
    await expect(one.getByText(mark, { exact: false }).first()).toBeVisible({ timeout: 60_000 });
    week.cleared();
    for (const page of Object.values(pages)) await expect(page.getByText(mark, { exact: false })).toHaveCount(0);
    for (const name of Object.keys(pages)) after[name]!.push(await least(cdp[name]!));
  }
  const drawn = await Promise.all(Object.values(pages).map((page) => page.evaluate(() => (window as unknown as { drawn: number }).drawn)));
  console.log(`${week.events} events to each of two pages in ${Math.round((Date.now() - began) / 1000)} s, ${drawn.join(' and ')} changes drawn, ${week.asked} requests`);
  for (const [name, sizes] of Object.entries(after)) {
    const shown = sizes.map((size) => `${(size.heap / MEGABYTE).toFixed(2)} MB, ${size.nodes} nodes, ${size.listeners} listeners`);
    console.log(`${name}, after each day:\n  ${shown.join('\n  ')}`);
  }
  expect(week.followers()).toBe(2);
  for (const [name, sizes] of Object.entries(after)) {
    const [first, last] = [sizes[0]!, sizes.at(-1)!];
    // Five bytes of each event that came since.
    expect(last.heap - first.heap, `${name}: heap`).toBeLessThan(3 * MEGABYTE);
    // One that a minute, an hour or a draw left behind would be thousands; some hundred are what is just being drawn.
    expect(last.nodes - first.nodes, `${name}: nodes`).toBeLessThan(500);
    expect(last.listeners - first.listeners, `${name}: listeners`).toBeLessThan(100);
  }
  await context.close();
});
