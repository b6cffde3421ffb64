import { expect, test } from '@playwright/test';
import { at, gone, logIn, scratch, Site } from './sites';

let root: string;
let site: Site;
test.beforeAll(async () => {
  root = scratch();
  site = await new Site(root, 'north').start();
  site.account('admin', 'administrator');
  site.account('looker', 'viewer');
  site.farside('pool', 'create', 'tank', '--path', `${site.dir}/tank.pool`, '--size', '64M');
  site.farside('volume', 'create', 'tank/mail', '--size', '4M');
  site.farside('snapshot', 'create', 'tank/mail@monday');
});
test.afterAll(async () => {
  await site.stop();
  gone(root);
});

test('a viewer sees everything and no button that he may not press', async ({ browser }) => {
  const page = await at(browser, site, 'looker');
  await page.goto(`${site.url}/volumes/tank/mail`);
  await expect(page.getByRole('gridcell', { name: 'monday', exact: true })).toBeVisible();
  for (const name of ['Delete', 'Resize', 'Take a snapshot', 'Clone', 'Roll back']) {
    await expect(page.getByRole('button', { name })).toHaveCount(0);
  }
  await expect(page.getByRole('link', { name: 'Protect a volume' })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'Audit' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Log out' }).click();
  await expect(page.getByLabel('Password')).toBeVisible();
});

test('a wrong password is said with what to do', async ({ page }) => {
  await page.goto(site.url);
  await page.getByLabel('Account').fill('admin');
  await page.getByLabel('Password').fill('not the password');
  await page.getByRole('button', { name: 'Log in' }).click();
  await expect(page.getByRole('alert')).toBeVisible();
});

test('everything is reached by the keyboard, and a dialog gives the focus back', async ({ browser }) => {
  const page = await at(browser, site);
  await page.goto(`${site.url}/volumes/tank/mail`);
  // Before it is drawn there is nothing to go to.
  await expect(page.getByRole('gridcell', { name: 'monday', exact: true })).toBeVisible();
  await page.keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to content' })).toBeFocused();
  const button = page.getByRole('button', { name: 'Take a snapshot' });
  await button.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('tuesday');
  await expect(dialog.locator('.plan li').first()).toBeVisible();
  await page.keyboard.press('Enter');
  await expect(dialog).toBeHidden();
  await expect(page.getByRole('gridcell', { name: 'tuesday', exact: true })).toBeVisible();
  await button.click();
  await page.keyboard.press('Escape');
  await expect(dialog).toBeHidden();
});

test('what takes something away asks for the name, and a refusal comes with its hint', async ({ browser }) => {
  const page = await at(browser, site);
  await page.goto(`${site.url}/volumes/tank/mail`);
  await page.getByRole('button', { name: 'Hold' }).first().click();
  await page.getByRole('dialog').getByRole('button', { name: 'Hold', exact: true }).click();
  await expect(page.getByRole('dialog')).toBeHidden();
  await page.getByRole('row', { name: /held/ }).getByRole('button', { name: 'Delete' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByText('As things stand it would be refused')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Delete', exact: true })).toBeDisabled();
});

test('colours follow the system until they are chosen, and that is remembered', async ({ browser }) => {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, colorScheme: 'dark' });
  const page = await context.newPage();
  await logIn(page, site.url);
  const isDark = () => page.evaluate(() => document.documentElement.classList.contains('pf-v6-theme-dark'));
  expect(await isDark()).toBe(true);
  await page.getByRole('button', { name: /^Colours/ }).click();
  expect(await isDark()).toBe(false);
  await page.reload();
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
  expect(await isDark()).toBe(false);
  await context.close();
});

test('it says when the daemon is gone, and goes on by itself when it is back', async ({ browser }) => {
  const page = await at(browser, site);
  await site.stop();
  await expect(page.getByText('The connection to the daemon is lost since')).toBeVisible();
  await site.start();
  // Sessions end with the daemon: what is asked for is the password.
  await expect(page.getByLabel('Password')).toBeVisible({ timeout: 60_000 });
});

test('what others do is seen without being asked for', async ({ browser }) => {
  const page = await at(browser, site);
  await page.goto(`${site.url}/pools`);
  await expect(page.getByRole('link', { name: 'tank' })).toBeVisible();
  site.farside('pool', 'create', 'second', '--path', `${site.dir}/second.pool`, '--size', '64M');
  await expect(page.getByRole('link', { name: 'second' })).toBeVisible({ timeout: 5_000 });
});
