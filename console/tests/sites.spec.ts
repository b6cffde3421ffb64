import { expect, test } from '@playwright/test';
import { at, complaints, gone, scratch, Site } from './sites';

let root: string;
let office: Site;
let south: Site;
test.beforeAll(async () => {
  root = scratch();
  office = await new Site(root, 'office').start();
  south = await new Site(root, 'south').start();
  for (const site of [office, south]) {
    site.account('admin', 'administrator');
    site.account('guest', 'viewer');
  }
  south.farside('pool', 'create', 'vault', '--path', `${root}/vault.pool`, '--size', '64M');
  south.farside('volume', 'create', 'vault/mail', '--size', '4M');
  await south.pairWith(office);
});
test.afterAll(async () => {
  await office.stop();
  await south.stop();
  gone(root);
});

test('a site that lets this one look is shown, and steered as far as it was given', async ({ browser }) => {
  const page = await at(browser, office);
  const said = complaints(page);
  await page.getByRole('link', { name: 'Sites', exact: true }).click();
  await expect(page.getByText('Closed to this site')).toBeVisible();

  south.farside('peer', 'set', 'office', '--role', 'operator');
  await page.reload();
  await expect(page.getByText('Answers')).toBeVisible();
  await page.getByRole('link', { name: 'south', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Overview' })).toBeVisible();
  await expect(page).toHaveURL(/\/site\/south/);
  await page.getByRole('link', { name: 'Volumes', exact: true }).click();
  await page.getByRole('link', { name: 'vault/mail' }).click();
  await expect(page.getByRole('heading', { level: 1, name: /vault\/mail/ })).toBeVisible();
  await expect(page).toHaveURL(/\/site\/south\/volumes\/vault\/mail$/);

  // An operator there takes a snapshot, and is not offered what takes something away.
  await expect(page.getByRole('button', { name: /^Delete/ })).toHaveCount(0);
  await page.getByRole('button', { name: 'Take a snapshot' }).click();
  await page.getByLabel('Name').fill('fromtheoffice');
  await page.getByRole('button', { name: 'Take it' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(south.farside('snapshot', 'list', 'vault/mail')).toContain('fromtheoffice');
  expect(south.farside('audit', '--limit', '1')).toContain('peer office (account admin)');

  // Whoever only looks at the office only looks there, too.
  const guest = await at(browser, office, 'guest');
  await guest.goto(`${office.url}/site/south/volumes/vault/mail`);
  await expect(guest.getByRole('heading', { level: 1, name: /vault\/mail/ })).toBeVisible();
  await expect(guest.getByText('fromtheoffice')).toBeVisible();
  await expect(guest.getByRole('button', { name: 'Take a snapshot' })).toHaveCount(0);
  await expect(guest.getByRole('button', { name: 'Clone' })).toHaveCount(0);

  // Back, by the list of sites in the head of the page.
  await page.getByLabel('Site that is shown').selectOption({ label: 'office' });
  await expect(page).toHaveURL(`${office.url}/`);
  expect(said).toEqual([]);
});
