import { randomBytes } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, type Page } from '@playwright/test';
import { at, complaints, gone, PASSWORD, scratch, Site } from './sites';

// What the command line steers the console steers, too: each click is looked for at the command line afterwards.
let root: string;
let north: Site;
let south: Site;
test.beforeAll(async () => {
  root = scratch();
  north = new Site(root, 'north');
  appendFileSync(join(north.dir, 'farside.toml'), '\n[hooks.app]\nfreeze = ["/bin/true"]\nthaw = ["/bin/true"]\n');
  await north.start();
  south = await new Site(root, 'south').start();
  for (const site of [north, south]) {
    site.account('admin', 'administrator');
    site.account('runner', 'operator');
    site.account('looker', 'viewer');
  }
  north.farside('pool', 'create', 'tank', '--path', `${root}/tank.pool`, '--size', '256M');
  south.farside('pool', 'create', 'vault', '--path', `${root}/vault.pool`, '--size', '256M');
  for (const name of ['mail', 'log']) north.farside('volume', 'create', `tank/${name}`, '--size', '16M');
  await south.pairWith(north);
  north.farside('peer', 'allow', 'south', 'tank/mail', '--reverse');
  north.write('tank/mail', randomBytes(1 << 20));
  north.farside('snapshot', 'create', 'tank/mail@monday');
  north.farside('snapshot', 'hold', 'tank/mail@monday');
  south.farside('mirror', 'create', 'north:tank/mail', 'vault/mail', '--every', '1h', '--keep', 'last=3');
  south.farside('mirror', 'initialize', 'vault/mail');
  north.farside('snapshot', 'create', 'tank/mail@later');
});
test.afterAll(async () => {
  await north.stop();
  await south.stop();
  gone(root);
});

const json = <T>(site: Site, ...words: string[]) => JSON.parse(site.farside(...words, '--json')) as T;

interface Given {
  fill?: Record<string, string>;
  choose?: Record<string, string>;
  typed?: string;
  /** The dialog has more to say. */
  stays?: boolean;
}

/** Presses a button, fills the dialog in, reads the plan, and runs it. */
async function run(page: Page, button: string, verb: string, { fill = {}, choose = {}, typed, stays = false }: Given = {}) {
  await page.getByRole('button', { name: button, exact: true }).first().click();
  const dialog = page.getByRole('dialog');
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

test('the points of both sites beside each other, as far as the other site allows it', async ({ browser }) => {
  const page = await at(browser, south);
  const said = complaints(page);
  await page.goto(`${south.url}/mirrors/vault/mail`);
  // Nothing was allowed yet: one line says what to type at the other site.
  await expect(page.getByText('farside peer set south --role viewer')).toBeVisible();
  const table = (name: RegExp) => page.getByRole('grid', { name });
  await expect(table(/^Snapshots of vault\/mail/).getByRole('row', { name: /monday/ })).toBeVisible();

  north.farside('peer', 'set', 'south', '--role', 'viewer');
  north.farside('snapshot', 'schedule', 'tank/mail', '--every', '1s', '--keep', 'daily=7', '--hook', 'app');
  await expect.poll(() => north.farside('snapshot', 'list', 'tank/mail')).toContain('app-');
  north.farside('snapshot', 'schedule', 'tank/mail', '--every', '6h');
  await page.reload();
  const both = table(/^Points of vault\/mail at south and of tank\/mail at north/);
  await expect(both.getByRole('row', { name: /monday/ })).toContainText('both sites');
  await expect(both.getByRole('row', { name: /monday/ }).getByRole('gridcell').nth(4)).toContainText('held');
  await expect(both.getByRole('row', { name: /later/ })).toContainText('only north');
  await expect(both.getByRole('row', { name: /app-/ }).first()).toContainText('application-consistent');
  await expect(page.getByText('every 6h, with the hook app; daily=7 stay')).toBeVisible();
  await expect(page.getByText('last=3').first()).toBeVisible();
  await expect(page.getByText('farside peer set')).toHaveCount(0);

  // From the original's site the same, once it may look at the replica's.
  south.farside('peer', 'set', 'north', '--role', 'viewer');
  const there = await at(browser, north);
  await there.goto(`${north.url}/mirrors/tank/mail`);
  await expect(there.getByRole('grid', { name: /^Points of tank\/mail at north and of vault\/mail at south/ }).getByRole('row', { name: /monday/ })).toContainText('both sites');
  await expect(there.getByText('every 1h', { exact: true })).toBeVisible();

  // The page of a peer, seen from here: its other side is this site itself.
  await page.goto(`${south.url}/site/north/mirrors/tank/mail`);
  await expect(table(/^Points of tank\/mail at north and of vault\/mail at south/).getByRole('row', { name: /later/ })).toContainText('only north');
  north.farside('snapshot', 'schedule', 'tank/mail', '--off');
  expect(said).toEqual([]);
});

test('a host gets its files, a right and loses it again', async ({ browser }) => {
  const page = await at(browser, north);
  const said = complaints(page);
  await page.getByRole('link', { name: 'Hosts', exact: true }).click();
  await expect(page.getByText('No host is known yet.')).toBeVisible();
  const dialog = await run(page, 'Add a host', 'Add', { fill: { Name: 'web1' }, stays: true });
  await expect(dialog.getByText('-----BEGIN CERTIFICATE-----').first()).toBeVisible();
  const saved = page.waitForEvent('download');
  await dialog.getByRole('button', { name: 'Save client-key.pem' }).click();
  const file = await saved;
  expect(file.suggestedFilename()).toBe('client-key.pem');
  expect(readFileSync(await file.path(), 'utf8')).toMatch(/^-----BEGIN [A-Z ]*PRIVATE KEY-----/);
  await dialog.getByRole('link', { name: 'Let web1 open a volume' }).click();

  await expect(page.getByRole('heading', { level: 1, name: 'web1' })).toBeVisible();
  await run(page, 'Allow a volume', 'Allow', { choose: { Volume: 'tank/mail' } });
  await expect(page.getByRole('gridcell', { name: 'read and write' })).toBeVisible();
  expect(json<{ rights: object[] }[]>(north, 'host', 'list')[0]?.rights).toEqual([{ volume: 'tank/mail', read_only: false }]);

  // A right by the volume, too.
  await page.goto(`${north.url}/volumes/tank/log`);
  await page.getByRole('button', { name: 'Allow a host' }).click();
  await page.getByRole('dialog').getByLabel('To read only').check();
  await page.getByRole('dialog').getByLabel('Host', { exact: true }).selectOption('web1');
  await page.getByRole('dialog').getByRole('button', { name: 'Allow', exact: true }).click();
  await expect(page.getByRole('dialog')).toBeHidden();
  await page.getByRole('link', { name: 'web1' }).click();
  await expect(page.getByRole('row', { name: /tank\/log/ })).toContainText('read');

  await run(page, 'Deny tank/mail', 'Deny', { typed: 'tank/mail' });
  await expect(page.getByRole('row', { name: /tank\/mail/ })).toHaveCount(0);
  expect(json<{ rights: object[] }[]>(north, 'host', 'list')[0]?.rights).toEqual([{ volume: 'tank/log', read_only: true }]);
  await run(page, 'Remove', 'Remove', { typed: 'web1' });
  await expect(page.getByText('No host is known yet.')).toBeVisible();
  expect(json(north, 'host', 'list')).toEqual([]);
  expect(said).toEqual([]);
});

test('accounts and tokens, and a secret that is shown once', async ({ browser, request }) => {
  const page = await at(browser, north);
  const said = complaints(page);
  await page.getByRole('link', { name: 'Accounts and tokens' }).click();
  await run(page, 'Make an account', 'Make it', { fill: { Name: 'ann', Password: PASSWORD, 'The password again': PASSWORD }, choose: { Role: 'operator' } });
  await expect(page.getByRole('gridcell', { name: 'ann', exact: true })).toBeVisible();
  expect(north.farside('account', 'list')).toMatch(/ann +operator/);

  // Two that differ are not taken.
  await page.getByRole('button', { name: 'Change ann' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('New password').fill(`${PASSWORD} new`);
  await dialog.getByLabel('The password again').fill(`${PASSWORD} now`);
  await expect(dialog.getByText('The two are not the same.')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Change', exact: true })).toBeDisabled();
  await dialog.getByLabel('The password again').fill(`${PASSWORD} new`);
  await dialog.getByLabel('Role').selectOption('viewer');
  await dialog.getByRole('button', { name: 'Change', exact: true }).click();
  await expect(dialog).toBeHidden();
  expect(north.farside('account', 'list')).toMatch(/ann +viewer/);
  expect((await request.post(`${north.url}/api/v1/session`, { data: { name: 'ann', password: `${PASSWORD} new` }, headers: { origin: north.url } })).status()).toBe(200);
  await run(page, 'Remove ann', 'Remove', { typed: 'ann' });
  await expect(page.getByRole('gridcell', { name: 'ann', exact: true })).toHaveCount(0);
  expect(north.farside('account', 'list')).not.toContain('ann');

  const made = await run(page, 'Make a token', 'Make it', { fill: { Name: 'monitoring', 'Good for': '30d' }, stays: true });
  const secret = await made.locator('code[aria-label="The token monitoring"]').textContent();
  const asked = () => request.get(`${north.url}/api/v1/pools`, { headers: { authorization: `Bearer ${secret}` } });
  expect((await asked()).status()).toBe(200);
  await made.getByRole('button', { name: 'Close' }).last().click();
  await expect(page.getByText(secret!)).toHaveCount(0);
  expect(north.farside('token', 'list')).toMatch(/monitoring +viewer/);
  await run(page, 'Revoke monitoring', 'Revoke', { typed: 'monitoring' });
  await expect(page.getByText('There are no tokens.')).toBeVisible();
  expect((await asked()).status()).toBe(401);
  expect(said).toEqual([]);
});

test('a timetable of snapshots is set, changed and ended', async ({ browser }) => {
  const page = await at(browser, north);
  const said = complaints(page);
  const timetables = () => json<{ volume: string; schedule: string; retention: string; others?: string[] }[]>(north, 'snapshot', 'schedule');
  await page.goto(`${north.url}/volumes/tank/mail`);
  await run(page, 'Set a timetable', 'Set', { fill: { Every: '2h', 'Of them stay': 'hourly=12', 'Together with': 'tank/log' } });
  await expect(page.getByRole('button', { name: 'Change the timetable' })).toBeVisible();
  expect(timetables()).toMatchObject([{ volume: 'tank/mail', schedule: 'every 2h', retention: 'hourly=12', others: ['tank/log'] }]);

  await page.getByRole('button', { name: 'Change the timetable' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Every')).toHaveValue('2h');
  await dialog.getByLabel('Snapshots are taken').selectOption('cron');
  await dialog.getByLabel(/^Timetable/).fill('0 3 * *');
  await expect(dialog.getByText('Write five fields')).toBeVisible();
  await dialog.getByLabel(/^Timetable/).fill('0 3 * * *');
  await dialog.getByLabel('Time zone').fill('UTC');
  await dialog.getByRole('button', { name: 'Set', exact: true }).click();
  await expect(dialog).toBeHidden();
  expect(timetables()).toMatchObject([{ schedule: '0 3 * * * UTC', retention: 'hourly=12', others: ['tank/log'] }]);
  await page.getByRole('button', { name: 'Change the timetable' }).click();
  await expect(dialog.getByLabel(/^Timetable/)).toHaveValue('0 3 * * *');
  await expect(dialog.getByLabel('Time zone')).toHaveValue('UTC');
  await page.keyboard.press('Escape');

  // The other volume says whose it is.
  await page.goto(`${north.url}/volumes/tank/log`);
  await expect(page.getByText('They are taken with those of tank/mail')).toBeVisible();
  await page.goto(`${north.url}/volumes/tank/mail`);
  await run(page, 'End the timetable', 'End it');
  await expect(page.getByText('No timetable takes snapshots of it.')).toBeVisible();
  expect(timetables()).toEqual([]);
  expect(said).toEqual([]);
});

test('schedule, objective and retention of a mirror', async ({ browser }) => {
  const page = await at(browser, south);
  const status = () => json<{ schedule: string | null; objective_seconds: number | null; retention: string | null }[]>(south, 'mirror', 'status', 'vault/mail')[0];
  await page.goto(`${south.url}/mirrors/vault/mail`);
  await run(page, 'Settings', 'Change', { choose: { 'Updates begin': 'cron' }, fill: { 'Timetable, five fields of cron': '30 2 * * 1-5', 'Time zone': 'Europe/Berlin', 'Points that stay': 'daily=7' } });
  await expect(page.getByText('30 2 * * 1-5 Europe/Berlin').first()).toBeVisible();
  expect(status()).toMatchObject({ schedule: '30 2 * * 1-5 Europe/Berlin', retention: 'daily=7' });
  // Of a timetable the hour alone is changed: the zone stays.
  await run(page, 'Settings', 'Change', { fill: { 'Timetable, five fields of cron': '30 4 * * 1-5' } });
  await expect(page.getByText('30 4 * * 1-5 Europe/Berlin').first()).toBeVisible();
  expect(status()).toMatchObject({ schedule: '30 4 * * 1-5 Europe/Berlin', retention: 'daily=7' });
  await run(page, 'Settings', 'Change', { choose: { 'Updates begin': 'rpo' }, fill: { 'At most this old': '1h30m' } });
  expect(status()).toMatchObject({ objective_seconds: 5400 });
});

test('limits of the site, of a volume, and what a peer may here', async ({ browser }) => {
  const page = await at(browser, south);
  const said = complaints(page);
  await page.goto(`${south.url}/peers`);
  await run(page, 'Change the limits', 'Change', { fill: { 'Limit of what is sent': '8MB/s,08:00-18:00=2MB/s', 'Transfers at once': '3' }, choose: { 'Hosts come first': 'fair' } });
  await expect(page.getByText('3 at most; 0 under way, 0 wait')).toBeVisible();
  expect(json(south, 'site', 'status')).toMatchObject({ transfer_size: 3, host_precedence: 'fair', throttle_out: { rules: expect.stringContaining('8MB/s') } });
  // What the site does not take is said with its hint, and nothing is changed.
  await run(page, 'Change the limits', 'Change', { fill: { 'Limit of what is sent': 'a lot' }, stays: true });
  await expect(page.getByRole('dialog').getByRole('alert')).toBeVisible();
  await page.keyboard.press('Escape');

  await page.goto(`${south.url}/peers/north`);
  await run(page, 'Settings', 'Change', { choose: { 'Its people may, at this site': 'operator' } });
  expect(json(south, 'peer', 'status', 'north')).toMatchObject({ role: 'operator' });

  const there = await at(browser, north);
  await there.goto(`${north.url}/volumes/tank/log`);
  await run(there, 'Limits', 'Change', { fill: { Quota: '64M', Reservation: '8M', 'Grows by itself up to': '32M', 'By so much at once': '4M' } });
  await expect(there.getByText('up to 32.0 MiB, by 4.0 MiB at once')).toBeVisible();
  const volume = () => json<{ name: string }[]>(north, 'volume', 'list').find(({ name }) => name === 'tank/log');
  expect(volume()).toMatchObject({ quota_bytes: 64 << 20, reserve_bytes: 8 << 20, autogrow: { to_bytes: 32 << 20, step_bytes: 4 << 20 } });
  await run(there, 'Limits', 'Change', { fill: { 'Grows by itself up to': '0' } });
  await expect(there.getByText('up to 32.0 MiB')).toHaveCount(0);
  expect(volume()).toMatchObject({ quota_bytes: 64 << 20, autogrow: null });
  expect(said.filter((line) => !line.includes('400 (Bad Request)'))).toEqual([]);
});

test('deduplication begins, tells what it saves, and is undone', async ({ browser }) => {
  const half = randomBytes(2 << 20);
  north.write('tank/log', Buffer.concat([half, half]));
  const page = await at(browser, north, 'runner');
  const said = complaints(page);
  const status = () => json<{ state: string; saved_bytes: number }>(north, 'volume', 'dedup', 'status', 'tank/log');
  await page.goto(`${north.url}/volumes/tank/log`);
  await run(page, 'Start deduplication', 'Start', { fill: { 'It may read': 'unlimited' } });
  await expect(page.getByText('Idle: looks again by itself')).toBeVisible({ timeout: 60_000 });
  await expect(page.getByText('2.0 MiB, its part of what is shared')).toBeVisible({ timeout: 60_000 });
  expect(status()).toMatchObject({ state: 'idle', saved_bytes: 2 << 20 });
  await page.goto(`${north.url}/pools/tank`);
  await expect(page.getByText('Blocks with several owners save 2.0 MiB')).toBeVisible();

  await page.goto(`${north.url}/volumes/tank/log`);
  await run(page, 'Undo', 'Undo', { typed: 'tank/log' });
  await expect.poll(() => status(), { timeout: 60_000 }).toMatchObject({ state: 'off', saved_bytes: 0 });
  await expect(page.getByRole('button', { name: 'Start deduplication' })).toBeVisible({ timeout: 60_000 });
  await run(page, 'Start deduplication', 'Start');
  await expect(page.getByRole('button', { name: 'Look again' })).toBeVisible();
  await run(page, 'Stop', 'Stop');
  await expect(page.getByRole('button', { name: 'Look again' })).toHaveCount(0);
  expect(status()).toMatchObject({ state: 'off' });
  expect(said).toEqual([]);
});

test('who may not is offered none of it', async ({ browser }) => {
  const looker = await at(browser, north, 'looker');
  await expect(looker.getByRole('link', { name: 'Accounts and tokens' })).toHaveCount(0);
  await looker.goto(`${north.url}/access`);
  await expect(looker.getByText('Only administrators of this site may see that.')).toBeVisible();
  const shown: [string, string | RegExp, string[]][] = [
    ['/volumes/tank/log', 'Deduplication', ['Start deduplication', 'Set a timetable', 'Limits', 'Allow a host']],
    ['/hosts', /^Hosts that may/, ['Add a host']],
    ['/peers', /^Limits of the whole site/, ['Change the limits']],
  ];
  for (const [path, there, buttons] of shown) {
    await looker.goto(north.url + path);
    await expect(looker.getByRole('heading', { name: there }).first()).toBeVisible();
    await looker.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
    for (const name of buttons) await expect(looker.getByRole('button', { name })).toHaveCount(0);
  }
  // An operator steers deduplication and limits of volumes, not timetables, hosts or the site.
  const runner = await at(browser, north, 'runner');
  await runner.goto(`${north.url}/volumes/tank/log`);
  await expect(runner.getByRole('button', { name: 'Start deduplication' })).toBeVisible();
  await expect(runner.getByRole('button', { name: 'Limits' })).toBeVisible();
  for (const name of ['Set a timetable', 'Allow a host']) await expect(runner.getByRole('button', { name })).toHaveCount(0);
  // A replica is its original's to deduplicate.
  const replica = await at(browser, south);
  await replica.goto(`${south.url}/volumes/vault/mail`);
  await expect(replica.getByText('A replica is its original’s to deduplicate.')).toBeVisible();
  await expect(replica.getByRole('button', { name: 'Start deduplication' })).toHaveCount(0);
});
