import AxeBuilder from '@axe-core/playwright';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, type Page } from '@playwright/test';
import { Demo } from './demo';
import { complaints, gone, logIn, scratch } from './sites';

const PAGES: [string, string][] = [
  ['overview', '/'],
  ['mirrors', '/mirrors'],
  ['mirror', '/mirrors/vault/mail'],
  ['mirror-late', '/mirrors/vault/orders'],
  ['mirror-first-copy', '/mirrors/vault/archive'],
  ['mirror-broken-off', '/mirrors/vault/files'],
  ['mirror-overtaken', '/mirrors/vault/ledger'],
  ['volumes', '/volumes'],
  ['volume', '/volumes/vault/ledger'],
  ['pools', '/pools'],
  ['pool', '/pools/vault'],
  ['hosts', '/hosts'],
  ['host', '/hosts/web1'],
  ['peers', '/peers'],
  ['peer', '/peers/north'],
  ['access', '/access'],
  ['sites', '/sites'],
  ['site-of-a-peer', '/site/north/mirrors'],
  ['calculator', '/calculator'],
  ['accelerator', '/accelerator'],
  ['alarms', '/alarms'],
  ['events', '/events'],
  ['audit', '/audit'],
  ['create', '/create'],
  ['create-original', '/create/original'],
  ['create-replica', '/create/replica'],
  ['create-pool', '/create/pool'],
  ['create-volume', '/create/volume'],
  ['nowhere', '/mirrors/vault/none'],
];

/** Name, page, button, and what is there once the dialog is. */
const DIALOGS: [string, string, string, string][] = [
  ['dialog', '/mirrors/vault/mail', 'Break (take over)', 'What will happen'],
  ['dialog-mirror-settings', '/mirrors/vault/mail', 'Settings', 'Points that stay'],
  ['dialog-timetable', '/volumes/vault/ledger', 'Set a timetable', 'What will happen'],
  ['dialog-volume-limits', '/volumes/vault/ledger', 'Limits', 'Grows by itself up to'],
  ['dialog-dedup', '/volumes/vault/ledger', 'Start deduplication', 'What will happen'],
  ['dialog-account', '/access', 'Make an account', 'The password again'],
  ['dialog-token', '/access', 'Make a token', 'Good for'],
  ['dialog-site-limits', '/peers', 'Change the limits', 'Transfers at once'],
  ['dialog-peer', '/peers/north', 'Settings', 'Its people may'],
  ['dialog-rekey', '/peers/north', 'Another key', 'was paired anew as'],
  ['dialog-drill', '/mirrors/vault/mail', 'Recovery drill', 'What will happen'],
  ['dialog-scrub', '/pools/vault', 'Scrub', 'What will happen'],
  ['dialog-import', '/pools', 'Take over a pool', 'It is a copy of another pool'],
  ['dialog-rename', '/volumes/vault/ledger', 'Rename', 'Within the pool'],
  ['dialog-alarm-test', '/alarms', 'Send a test alarm', 'What will happen'],
  ['dialog-accelerator', '/accelerator', 'Switch it on', 'Chunk store, at most'],
];

const PICTURES = process.env.PICTURES ?? join(import.meta.dirname, '../test-results/pictures');

let root: string;
let demo: Demo;
test.beforeAll(async () => {
  test.setTimeout(240_000);
  root = scratch();
  demo = await new Demo().start(root);
});
test.afterAll(async () => {
  await demo.stop();
  gone(root);
});

async function wrongFor(page: Page): Promise<string[]> {
  const found = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']).analyze();
  return found.violations
    .filter((violation) => violation.impact === 'serious' || violation.impact === 'critical')
    .flatMap((violation) => violation.nodes.map((node) => `${violation.id}: ${node.html.slice(0, 200)} ${node.failureSummary ?? ''}`));
}

const LOOKS = [
  { name: 'light', size: { width: 1280, height: 900 }, scheme: 'light' },
  { name: 'dark', size: { width: 1280, height: 900 }, scheme: 'dark' },
  { name: 'phone', size: { width: 390, height: 844 }, scheme: 'light' },
] as const;

for (const look of LOOKS) {
  test(`every page: no complaint of browser or axe, ${look.name}`, async ({ browser }) => {
    test.setTimeout(420_000);
    const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: look.size, colorScheme: look.scheme, reducedMotion: 'reduce' });
    const page = await context.newPage();
    const site = demo.sites.get('south')!;
    mkdirSync(join(PICTURES, look.name), { recursive: true });
    await page.goto(site.url);
    await expect(page.getByLabel('Password')).toBeVisible();
    const bad: string[] = await wrongFor(page);
    await page.screenshot({ path: join(PICTURES, look.name, 'login.png') });
    await logIn(page, site.url, 'admin', site.password);
    // To have asked who one is before the login is answered with 401, which the browser notes.
    const said = complaints(page);
    for (const [name, path] of PAGES) {
      await page.goto(site.url + path);
      await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
      await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
      await page.waitForTimeout(200);
      bad.push(...(await wrongFor(page)).map((line) => `${name}, ${look.name}: ${line}`));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      if (wide > 1) bad.push(`${name}, ${look.name}: ${wide} pixels too wide`);
      // The page scrolls inside its frame: all of it, for whoever looks.
      const height = await page.evaluate(() => (document.getElementById('main')?.scrollHeight ?? 0) + 120);
      await page.setViewportSize({ width: look.size.width, height: Math.max(look.size.height, Math.min(height, 4000)) });
      await page.screenshot({ path: join(PICTURES, look.name, `${name}.png`) });
      await page.setViewportSize(look.size);
    }
    // The style sheet is pruned when it is built: what scripts put together has to be left in it.
    await page.goto(`${site.url}/mirrors`);
    await expect(page.locator('.status').first()).toBeVisible();
    const colours = await page.locator('.status').evaluateAll((all) => new Set(all.map((each) => getComputedStyle(each).color)).size);
    expect(colours).toBeGreaterThan(3);
    // Dialogs, too.
    for (const [name, path, button, has] of DIALOGS) {
      await page.goto(site.url + path);
      await page.getByRole('button', { name: button, exact: true }).click();
      await expect(page.getByRole('dialog').getByText(has).first()).toBeVisible();
      bad.push(...(await wrongFor(page)).map((line) => `${name}, ${look.name}: ${line}`));
      await page.screenshot({ path: join(PICTURES, look.name, `${name}.png`) });
    }
    // What is shown once.
    await page.goto(`${site.url}/hosts`);
    await page.getByRole('button', { name: 'Add a host' }).click();
    await page.getByRole('dialog').locator('input').fill(`web-${look.name}`);
    await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
    await expect(page.getByRole('dialog').getByText('client-key.pem', { exact: true })).toBeVisible();
    bad.push(...(await wrongFor(page)).map((line) => `host's files, ${look.name}: ${line}`));
    await page.screenshot({ path: join(PICTURES, look.name, 'dialog-host-files.png') });
    expect(bad).toEqual([]);
    expect(said).toEqual([]);
    await context.close();
  });
}

// `MANUAL=DIRECTORY`: the pictures of the manual, in the light.
test('pictures of the manual', async ({ browser }) => {
  const directory = process.env.MANUAL;
  test.skip(!directory, 'MANUAL names no directory');
  const site = demo.sites.get('south')!;
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true, colorScheme: 'light', reducedMotion: 'reduce' })).newPage();
  await logIn(page, site.url, 'admin', site.password);
  const take = async (name: string, path: string, height: number, button?: string) => {
    await page.setViewportSize({ width: 1280, height });
    await page.goto(site.url + path);
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
    if (button) {
      await page.getByRole('button', { name: button, exact: true }).click();
      await expect(page.getByRole('dialog').locator('.plan li').first()).toBeVisible();
    }
    await page.waitForTimeout(500);
    await page.screenshot({ path: join(directory!, `${name}.png`) });
  };
  // Some updates first: a plot of one says little.
  await page.goto(`${site.url}/mirrors/vault/mail`);
  await expect(page.getByText(/^The last [4-9] updates/)).toBeVisible({ timeout: 160_000 });
  await take('mirror', '/mirrors/vault/mail', 1180);
  await take('dialog', '/mirrors/vault/mail', 860, 'Break (take over)');
  await take('overview', '/', 860);
});
