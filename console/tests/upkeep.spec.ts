import { randomBytes } from 'node:crypto';
import { copyFileSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, type Page } from '@playwright/test';
import { at, complaints, gone, scratch, Site } from './sites';

// What is seldom done: names, pools that failed or were moved, drills, paths, alarms, the accelerator. Each click is looked for at the
// command line afterwards.
let root: string;
let north: Site;
let south: Site;
test.beforeAll(async () => {
  root = scratch();
  north = await new Site(root, 'north').start();
  south = await new Site(root, 'south').start();
  for (const site of [north, south]) {
    site.account('admin', 'administrator');
    site.account('runner', 'operator');
    site.account('looker', 'viewer');
  }
  north.farside('pool', 'create', 'tank', '--path', join(root, 'tank.pool'), '--size', '256M');
  south.farside('pool', 'create', 'vault', '--path', join(root, 'vault.pool'), '--size', '256M');
  for (const name of ['mail', 'big']) north.farside('volume', 'create', `tank/${name}`, '--size', '16M');
  await south.pairWith(north);
  north.farside('peer', 'allow', 'south', 'tank/mail', 'tank/big', '--reverse');
  north.write('tank/mail', randomBytes(1 << 20));
  north.write('tank/big', randomBytes(8 << 20));
  south.farside('mirror', 'create', 'north:tank/mail', 'vault/mail', '--every', '1h', '--keep', 'last=3');
  south.farside('mirror', 'initialize', 'vault/mail');
});
test.afterAll(async () => {
  await north.stop();
  await south.stop();
  gone(root);
});

const json = <T>(site: Site, ...words: string[]) => JSON.parse(site.farside(...words, '--json')) as T;

interface Staged {
  staged?: { bytes: number; transferring: boolean }[];
}

interface Given {
  /** Fields that are out of sight at first. */
  more?: string;
  fill?: Record<string, string>;
  choose?: Record<string, string>;
  typed?: string;
  /** The dialog has more to say. */
  stays?: boolean;
}

/** Presses a button, fills the dialog in, reads the plan, and runs it. */
async function run(page: Page, button: string, verb: string, { more, fill = {}, choose = {}, typed, stays = false }: Given = {}) {
  await page.getByRole('button', { name: button, exact: true }).first().click();
  const dialog = page.getByRole('dialog');
  if (more) await dialog.getByRole('button', { name: more }).click();
  for (const [label, value] of Object.entries(choose)) await dialog.getByLabel(label, { exact: true }).selectOption(value);
  for (const [label, text] of Object.entries(fill)) await dialog.locator('input').and(dialog.getByLabel(label)).first().fill(text);
  await expect(dialog.locator('.plan li').first()).toBeVisible();
  const runs = dialog.getByRole('button', { name: verb, exact: true });
  if (typed) {
    await expect(runs).toBeDisabled();
    await dialog.getByLabel(`Type ${typed} to confirm`).fill(typed);
  }
  await runs.click();
  if (!stays) await expect(dialog).toBeHidden();
  return dialog;
}

/** Long enough for whatever the page asks again by itself. */
const settles = (page: Page) => page.waitForTimeout(3_000);

test('volumes and snapshots get other names, and the page follows', async ({ browser }) => {
  north.farside('volume', 'create', 'tank/old', '--size', '4M');
  north.farside('snapshot', 'create', 'tank/old@monday');
  const page = await at(browser, north, 'runner');
  const said = complaints(page);
  await page.goto(`${north.url}/volumes/tank/old`);
  await run(page, 'Rename monday', 'Rename', { fill: { 'New name': 'before' } });
  await expect(page.getByRole('gridcell', { name: 'before', exact: true })).toBeVisible();
  await run(page, 'Rename', 'Rename', { fill: { 'New name': 'new' } });
  await expect(page.getByRole('heading', { level: 1, name: 'tank/new' })).toBeVisible();
  await expect(page).toHaveURL(/\/volumes\/tank\/new$/);
  await expect(page.getByRole('gridcell', { name: 'before', exact: true })).toBeVisible();
  expect(north.farside('snapshot', 'list', 'tank/new')).toContain('before');

  // What a mirror knows by its name keeps it, and why is said.
  await page.goto(`${north.url}/volumes/tank/mail`);
  const dialog = await run(page, 'Rename', 'Rename', { fill: { 'New name': 'post' }, stays: true });
  await expect(dialog.getByRole('alert')).toContainText('mirrored by south');
  expect(said.filter((line) => !/409|Conflict/.test(line))).toEqual([]);
});

test('snapshots of several volumes at one instant', async ({ browser }) => {
  const page = await at(browser, north, 'runner');
  await page.goto(`${north.url}/volumes/tank/mail`);
  await run(page, 'Take a snapshot', 'Take it', { fill: { Name: 'together', 'Together with': 'tank/big' } });
  const of = (volume: string) => json<{ name: string; created_at: string }[]>(north, 'snapshot', 'list', volume).find(({ name }) => name === 'together')?.created_at;
  expect(of('tank/big')).toBe(of('tank/mail'));
  expect(of('tank/big')).toBeDefined();
});

test('what is deleted is not asked for again while its page is left', async ({ browser }) => {
  north.farside('pool', 'create', 'scrap', '--path', join(root, 'scrap.pool'), '--size', '64M');
  north.farside('volume', 'create', 'scrap/one', '--size', '4M');
  north.farside('host', 'add', 'web9', '--directory', join(root, 'web9'));
  const page = await at(browser, north);
  const said = complaints(page);
  await page.goto(`${north.url}/volumes/scrap/one`);
  await run(page, 'Delete', 'Delete', { typed: 'scrap/one' });
  await expect(page).toHaveURL(/\/volumes$/);
  await expect(page.getByRole('link', { name: 'scrap/one' })).toHaveCount(0);
  await settles(page);
  await page.goto(`${north.url}/pools/scrap`);
  await run(page, 'Delete', 'Delete', { typed: 'scrap' });
  await expect(page).toHaveURL(/\/pools$/);
  await expect(page.getByRole('link', { name: 'scrap' })).toHaveCount(0);
  await settles(page);
  await page.goto(`${north.url}/hosts/web9`);
  await run(page, 'Remove', 'Remove', { typed: 'web9' });
  await expect(page).toHaveURL(/\/hosts$/);
  await settles(page);
  expect(said).toEqual([]);

  // What somebody else has deleted is not shown as if it were there.
  north.farside('volume', 'create', 'tank/shortly', '--size', '4M');
  await page.goto(`${north.url}/volumes/tank/shortly`);
  await expect(page.getByText('hosts may write')).toBeVisible();
  north.farside('volume', 'delete', 'tank/shortly', '--yes');
  await expect(page.getByText('does not exist')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Take a snapshot' })).toHaveCount(0);
});

test('a drill: it goes by itself, is kept, and what came of it is written down', async ({ browser }) => {
  const page = await at(browser, south, 'runner');
  const said = complaints(page);
  await page.goto(`${south.url}/mirrors/vault/mail`);
  await page.getByRole('button', { name: 'Recovery drill' }).click();
  const dialog = page.getByRole('dialog');
  // Whoever may not delete it later is offered what goes by itself first.
  await expect(dialog.getByLabel('The clone goes')).toHaveValue('itself');
  await dialog.getByLabel('After').fill('2h');
  await expect(dialog.getByText('An hour at most')).toBeVisible();
  await dialog.getByLabel('After').fill('30m');
  await dialog.getByLabel('Name of the clone').fill('try');
  await dialog.getByRole('button', { name: 'Begin the drill' }).click();
  await expect(dialog.getByText('vault/try was made of')).toBeVisible();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  const row = page.getByRole('row', { name: /vault\/try/ });
  await expect(row).toContainText(/in (30m00s|29m\d\ds)/);
  expect(south.farside('volume', 'list')).toContain('vault/try');

  await page.waitForTimeout(3_000);
  await run(page, 'Keep vault/try', 'Keep it');
  await expect(row).toContainText(/in (30m00s|29m5\ds)/);
  await run(page, 'End the drill vault/try', 'End it', { choose: { 'What came of it': 'ok' }, fill: { 'What was tried': 'read it' }, typed: 'vault/try' });
  await expect(row).toHaveCount(0);
  expect(south.farside('volume', 'list')).not.toContain('vault/try');
  expect(south.farside('mirror', 'log', 'vault/mail')).toContain('recovery point');
  await expect(page.getByRole('grid', { name: 'Log' }).getByText('the command succeeded')).toBeVisible();
  expect(said).toEqual([]);

  // One that stays is a volume: an administrator ends it, from any browser.
  south.farside('mirror', 'drill', 'vault/mail', 'kept');
  await page.reload();
  await expect(page.getByRole('link', { name: 'vault/kept' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'End the drill vault/kept' })).toHaveCount(0);
  const admin = await at(browser, south);
  await admin.goto(`${south.url}/mirrors/vault/mail`);
  await run(admin, 'End the drill vault/kept', 'End it', { typed: 'vault/kept' });
  await expect(admin.getByRole('link', { name: 'vault/kept' })).toHaveCount(0);
  expect(south.farside('volume', 'list')).not.toContain('vault/kept');
});

test('what a cut transfer has left is seen, and dropped', async ({ browser }) => {
  south.farside('mirror', 'create', 'north:tank/big', 'vault/big', '--throttle', '300kB/s');
  south.farside('mirror', 'initialize', 'vault/big', '--no-wait');
  const staged = () => [json<Staged | Staged[]>(south, 'pool', 'status', 'vault')].flat()[0]?.staged ?? [];
  await expect.poll(() => staged()[0]?.bytes ?? 0, { timeout: 60_000 }).toBeGreaterThan(0);
  const page = await at(browser, south, 'runner');
  await page.goto(`${south.url}/pools/vault`);
  // While it runs, it is refused.
  await page.getByRole('button', { name: 'Drop what is staged of vault/big' }).click();
  await expect(page.getByText('As things stand it would be refused')).toBeVisible();
  await page.keyboard.press('Escape');
  south.farside('mirror', 'quiesce', 'vault/big');
  south.farside('mirror', 'abort', 'vault/big');
  await expect(page.getByText('the next transfer goes on from there')).toBeVisible({ timeout: 30_000 });
  await run(page, 'Drop what is staged of vault/big', 'Drop it', { typed: 'vault/big' });
  await expect(page.getByRole('grid', { name: 'Staged in vault' })).toHaveCount(0);
  expect(staged()).toEqual([]);
  south.farside('mirror', 'delete', 'vault/big', '--yes');
});

test('the mirrors of a group are broken off at one moment', async ({ browser }) => {
  for (const name of ['db', 'wal']) {
    north.farside('volume', 'create', `tank/${name}`, '--size', '4M');
    north.write(`tank/${name}`, randomBytes(4096 * 8));
    north.farside('peer', 'allow', 'south', `tank/${name}`);
    south.farside('mirror', 'create', `north:tank/${name}`, `vault/${name}`, '--group', 'shop', '--keep', 'last=3');
    south.farside('mirror', 'initialize', `vault/${name}`);
  }
  south.farside('mirror', 'update', 'vault/db');
  const page = await at(browser, south, 'runner');
  const said = complaints(page);
  await page.goto(`${south.url}/mirrors/vault/db`);
  await page.getByRole('button', { name: 'Break (take over)' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('All 2 mirrors of the group shop')).toBeChecked();
  await expect(dialog.getByText('2 mirrors are broken off, all as of')).toBeVisible();
  // One by itself is possible, too.
  await dialog.getByLabel('All 2 mirrors of the group shop').uncheck();
  await expect(dialog.getByRole('heading', { name: 'Break vault/db off: take over here' })).toBeVisible();
  await dialog.getByLabel('All 2 mirrors of the group shop').check();
  await expect(dialog.getByText('2 mirrors are broken off, all as of')).toBeVisible();
  await dialog.getByLabel('Type shop to confirm').fill('shop');
  await dialog.getByRole('button', { name: 'Break all' }).click();
  await expect(dialog).toBeHidden();
  const mirrors = ['vault/db', 'vault/wal'].map((name) => json<{ state: string; current_snapshot: string }[]>(south, 'mirror', 'status', name)[0]!);
  expect(mirrors.map(({ state }) => state)).toEqual(['broken-off', 'broken-off']);
  const moments = mirrors.map(({ current_snapshot: name }, index) => json<{ name: string; created_at: string }[]>(south, 'snapshot', 'list', ['vault/db', 'vault/wal'][index]!).find((each) => each.name === name)?.created_at);
  expect(moments[0]).toBe(moments[1]);
  expect(said).toEqual([]);
  for (const name of ['db', 'wal']) south.farside('mirror', 'delete', `vault/${name}`, '--yes');
});

test('what the daemon is, and its log for whoever helps', async ({ browser }) => {
  const page = await at(browser, north, 'runner');
  const said = complaints(page);
  await page.goto(`${north.url}/events`);
  await expect(page.getByText(north.dir)).toBeVisible();
  await page.getByRole('button', { name: 'Read its log' }).click();
  await expect(page.getByLabel('Log of the daemon')).toContainText('pool');
  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Save it for whoever helps' }).click();
  const file = await saved;
  expect(file.suggestedFilename()).toMatch(/^farside-north-.*\.json$/);
  expect(JSON.parse(readFileSync(await file.path(), 'utf8'))).toMatchObject({ configuration: { name: 'north' } });
  expect(said).toEqual([]);
});

test('a scrub at another rate, and from the beginning', async ({ browser }) => {
  const page = await at(browser, south, 'runner');
  await page.goto(`${south.url}/pools/vault`);
  await run(page, 'Scrub', 'Begin', { fill: { 'It may read': '40kB/s' } });
  await expect(page.getByRole('button', { name: 'Stop the scrub' })).toBeVisible();
  await run(page, 'Change the rate', 'Change', { fill: { 'It may read': '50kB/s' } });
  const scrub = () => [json<object>(south, 'pool', 'scrub', 'vault', '--status')].flat()[0];
  expect(scrub()).toMatchObject({ limit_bytes_per_second: 50_000 });
  await run(page, 'Stop the scrub', 'Stop');
  await page.getByRole('button', { name: 'Go on with the scrub' }).click();
  await page.getByLabel('From the beginning').check();
  await page.getByRole('dialog').locator('input').and(page.getByLabel('It may read')).fill('unlimited');
  await page.getByRole('dialog').getByRole('button', { name: 'Begin' }).click();
  await expect(page.getByText('The last scrub read everything')).toBeVisible({ timeout: 30_000 });
});

test('a pool that failed is opened again, and one that was moved is found', async ({ browser }) => {
  const site = await new Site(root, 'west').start();
  try {
    site.account('admin', 'administrator');
    const [first, second] = [join(root, 'west.pool'), join(root, 'moved.pool')];
    site.farside('pool', 'create', 'attic', '--path', first, '--size', '64M');
    site.farside('volume', 'create', 'attic/mail', '--size', '4M');
    const state = () => json<{ state: string }[]>(site, 'pool', 'list')[0]?.state;

    await site.stop();
    renameSync(first, second);
    await site.start();
    const page = await at(browser, site);
    const said = complaints(page);
    await page.goto(`${site.url}/pools/attic`);
    await expect(page.getByText('Failed', { exact: true })).toBeVisible();
    renameSync(second, first);
    await run(page, 'Open again', 'Open again');
    await expect(page.getByText('It serves.')).toBeVisible();
    await expect(page.getByRole('button', { name: 'Open again' })).toHaveCount(0);
    expect(state()).toBe('open');

    await site.stop();
    renameSync(first, second);
    await site.start();
    const again = await at(browser, site);
    await again.goto(`${site.url}/pools/attic`);
    await run(again, 'It lies elsewhere', 'Take it over', { fill: { 'File or device': second } });
    await expect(again.getByText('It serves.')).toBeVisible();
    await expect(again.getByRole('link', { name: 'attic/mail' })).toBeVisible();
    expect(state()).toBe('open');

    // A copy of it becomes a pool of its own.
    await site.stop();
    copyFileSync(second, first);
    await site.start();
    const third = await at(browser, site);
    await third.goto(`${site.url}/pools`);
    await third.getByRole('button', { name: 'Take over a pool' }).click();
    const dialog = third.getByRole('dialog');
    await dialog.getByLabel('File or device').fill(first);
    await dialog.getByLabel('Name of the pool here').fill('practice');
    await dialog.getByLabel('It is a copy of another pool').check();
    await expect(dialog.getByText('get new identities, for good')).toBeVisible();
    await dialog.getByRole('button', { name: 'Take it over' }).click();
    await expect(third.getByRole('heading', { level: 1, name: 'practice' })).toBeVisible();
    await expect(third.getByText('It serves.')).toBeVisible();
    expect(json<{ name: string }[]>(site, 'pool', 'list').map(({ name }) => name).sort()).toEqual(['attic', 'practice']);
    expect(said.filter((line) => !/ERR_|Failed to load resource|401/.test(line))).toEqual([]);
  } finally {
    await site.stop();
  }
});

test('a test alarm, and what came of it', async ({ browser }) => {
  const page = await at(browser, north, 'runner');
  const said = complaints(page);
  await page.goto(`${north.url}/alarms`);
  const dialog = await run(page, 'Send a test alarm', 'Send it', { stays: true });
  await expect(dialog.getByText('It arrived')).toBeVisible();
  await expect(dialog.getByText('Alarms reach nobody but the log here')).toBeVisible();
  expect(said).toEqual([]);
});

test('paths of a mirror and of a peer, its name, its marks', async ({ browser }) => {
  const page = await at(browser, south);
  const said = complaints(page);
  const address = json<{ address: string }[]>(south, 'peer', 'list')[0]!.address;
  await page.goto(`${south.url}/mirrors/vault/mail`);
  await run(page, 'Settings', 'Change', { more: 'Use of the link', fill: { Paths: `127.0.0.1=${address}` } });
  const link = () => json<{ link: { paths: string[] } }[]>(south, 'mirror', 'status', 'vault/mail')[0]?.link.paths;
  expect(link()).toEqual([`127.0.0.1=${address}`]);
  await expect(page.getByText(`127.0.0.1=${address}`)).toBeVisible();
  await run(page, 'Settings', 'Change', { fill: { Paths: '' } });
  expect(link()).toEqual([]);

  await page.goto(`${south.url}/peers/north`);
  await page.getByRole('button', { name: 'Settings' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Paths and packets' }).click();
  await dialog.getByLabel('Paths', { exact: true }).fill(`127.0.0.1=${address}`);
  await dialog.getByLabel('Of several paths it takes').selectOption('failover');
  await dialog.getByLabel('Committed rate (CIR)').fill('80Mbit/s');
  await dialog.getByLabel('DSCP mark').fill('10');
  await dialog.getByLabel('Sign of life every').fill('10s');
  await dialog.getByRole('button', { name: 'Change', exact: true }).click();
  await expect(dialog).toBeHidden();
  expect(json(south, 'peer', 'status', 'north')).toMatchObject({ link: { paths: [`127.0.0.1=${address}`], mode: 'failover', rate_bytes_per_second: 10_000_000, dscp: 10, keepalive_seconds: 10 } });
  await run(page, 'Settings', 'Change', { fill: { 'Name here': 'arctic' } });
  await expect(page.getByRole('heading', { level: 1, name: 'arctic' })).toBeVisible();
  await expect(page).toHaveURL(/\/peers\/arctic$/);
  await run(page, 'Settings', 'Change', { fill: { 'Name here': 'north' } });
  await expect(page).toHaveURL(/\/peers\/north$/);
  await settles(page);
  expect(said).toEqual([]);
});

test('the accelerator: on, a policy, a forward, and off again', async ({ browser }) => {
  const page = await at(browser, north);
  const said = complaints(page);
  await page.goto(`${north.url}/peers`);
  await page.getByRole('link', { name: 'the accelerator' }).click();
  await expect(page.getByText('The accelerator is off at this site.')).toBeVisible();
  await page.getByRole('button', { name: 'Switch it on' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Addresses and bridges' }).click();
  await dialog.getByLabel('Other accelerators meet it at').fill('127.0.0.1:0');
  await dialog.getByLabel('Chunk store, at most').fill('64M');
  await expect(dialog.getByText('No connection is taken by itself')).toBeVisible();
  await dialog.getByRole('button', { name: 'Switch it on' }).click();
  await expect(dialog).toBeHidden({ timeout: 60_000 });
  await expect(page.getByRole('link', { name: 'Accelerator', exact: true })).toBeVisible();

  await run(page, 'Set a policy', 'Set it', { fill: { Application: 'payroll', 'Ports of the server': '7000-7009 8080' }, choose: { 'What is done': 'lz' } });
  const policies = () => json<{ application: string; action: string; ports: string[]; origin: string }[]>(north, 'accel', 'policies').filter(({ origin }) => origin === 'set');
  expect(policies()).toMatchObject([{ application: 'payroll', action: 'lz', ports: ['7000-7009', '8080'] }]);
  await run(page, 'Change the policy payroll', 'Set it', { choose: { 'What is done': 'transport' } });
  expect(policies()).toMatchObject([{ application: 'payroll', action: 'transport', ports: ['7000-7009', '8080'] }]);
  await run(page, 'Take back the policy payroll', 'Take it back');
  expect(policies()).toEqual([]);
  await run(page, 'Read farside.toml again', 'Read them');

  await run(page, 'Forward a port', 'Forward it', { fill: { 'Listen here at': '127.0.0.1:45432', 'Its accelerator connects to': '127.0.0.1:5432' }, choose: { Peer: 'south' } });
  await expect(page.getByRole('gridcell', { name: '127.0.0.1:45432', exact: true })).toBeVisible();
  await run(page, 'End the forward at 127.0.0.1:45432', 'End it');
  expect(json(north, 'accel', 'forwards')).toEqual([]);

  // An operator runs it, and does not say what it does.
  const runner = await at(browser, north, 'runner');
  await runner.goto(`${north.url}/accelerator`);
  await expect(runner.getByRole('button', { name: 'Send a volume ahead' })).toBeVisible();
  for (const name of ['Set a policy', 'Switch it off', 'Settings', 'Forward a port']) await expect(runner.getByRole('button', { name })).toHaveCount(0);
  await run(page, 'Switch it off', 'Switch it off');
  await expect(page.getByText('The accelerator is off at this site.')).toBeVisible({ timeout: 30_000 });
  expect(said).toEqual([]);
});

test('the same at another site, as far as it was given, and nothing for who only looks', async ({ browser }) => {
  north.farside('peer', 'set', 'south', '--role', 'operator');
  north.farside('volume', 'create', 'tank/far', '--size', '4M');
  const page = await at(browser, south);
  const said = complaints(page);
  await page.goto(`${south.url}/site/north/volumes/tank/far`);
  await run(page, 'Rename', 'Rename', { fill: { 'New name': 'distant' } });
  await expect(page).toHaveURL(/\/site\/north\/volumes\/tank\/distant$/);
  expect(north.farside('volume', 'list')).toContain('tank/distant');
  await page.goto(`${south.url}/site/north/alarms`);
  const dialog = await run(page, 'Send a test alarm', 'Send it', { stays: true });
  await expect(dialog.getByText('It arrived')).toBeVisible();
  await page.goto(`${south.url}/site/north/pools/tank`);
  await expect(page.getByRole('button', { name: 'Scrub' })).toBeVisible();
  for (const name of ['Grow', 'Delete', 'Open again']) await expect(page.getByRole('button', { name })).toHaveCount(0);
  await page.goto(`${south.url}/site/north/pools`);
  await expect(page.getByRole('button', { name: 'Take over a pool' })).toHaveCount(0);
  expect(said).toEqual([]);

  const looker = await at(browser, south, 'looker');
  for (const path of ['/mirrors/vault/mail', '/pools/vault', '/pools', '/alarms', '/peers', '/peers/north', '/accelerator', '/volumes/vault/mail', '/events', '/site/north/volumes/tank/distant', '/site/north/alarms']) {
    await looker.goto(south.url + path);
    await expect(looker.getByRole('heading', { level: 1 })).toBeVisible();
    await looker.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
    // Without those that sort tables and copy lines.
    const buttons = await looker.locator('#main button:not(th *):not(.copy-row *)').evaluateAll((all) => all.map((each) => each.getAttribute('aria-label') ?? each.textContent));
    expect(buttons, path).toEqual([]);
  }
});

test('ending a pairing: doing nothing stays, doing it leaves', async ({ browser }) => {
  const page = await at(browser, south);
  const said = complaints(page);
  await page.goto(`${south.url}/peers/north`);
  await page.getByRole('button', { name: 'Remove', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Do nothing' }).click();
  await expect(page.getByRole('dialog')).toBeHidden();
  await expect(page).toHaveURL(/\/peers\/north$/);
  await expect(page.getByRole('heading', { level: 1, name: 'north' })).toBeVisible();

  south.farside('mirror', 'delete', 'vault/mail', '--yes');
  await run(page, 'Remove', 'Remove', { typed: 'north' });
  await expect(page).toHaveURL(/\/peers$/);
  await expect(page.getByText('This site is paired with no other yet.')).toBeVisible();
  await settles(page);
  expect(json(south, 'peer', 'list')).toEqual([]);
  expect(said).toEqual([]);
});
