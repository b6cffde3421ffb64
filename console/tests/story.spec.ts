import { randomBytes } from 'node:crypto';
import { expect, test, type Page } from '@playwright/test';
import { at, complaints, gone, scratch, Site } from './sites';

// From a fresh start: pairing, mirror, failover and failback, with nothing but the browser. Only hosts write over NBD.
test('a volume is protected, taken over and given back in the browser alone', async ({ browser }) => {
  const root = scratch();
  const north = await new Site(root, 'north').start();
  const south = await new Site(root, 'south').start();
  try {
    north.account('admin', 'administrator');
    south.account('admin', 'administrator');
    const a = await at(browser, north);
    const b = await at(browser, south);
    const said = [complaints(a), complaints(b)];

    const began = Date.now();
    await test.step('the original: pool, volume, code', async () => {
      await a.getByRole('link', { name: 'Protect a volume' }).first().click();
      await a.getByRole('link', { name: 'The original is here' }).click();
      await a.getByLabel('Size of the pool').fill('512M');
      await a.getByRole('button', { name: 'Make the pool' }).click();
      await a.getByLabel('Name of the volume').fill('mail');
      await a.getByLabel('Size of the volume').fill('16M');
      await a.getByRole('button', { name: 'Make the volume' }).click();
      await a.getByRole('button', { name: 'Invite a site' }).click();
      await expect(a.getByText('Waiting for the other site')).toBeVisible();
    });
    const content = randomBytes(2 << 20);
    north.write('tank/mail', content);

    await test.step('the replica’s site joins', async () => {
      const code = (await a.locator('code[aria-label="The code"]').textContent()) ?? '';
      const address = (await a.locator('code[aria-label^="The address"]').textContent()) ?? '';
      await b.getByRole('link', { name: 'Protect a volume' }).first().click();
      await b.getByRole('link', { name: 'The replica is to be here' }).click();
      await b.getByLabel('Name of the pool').fill('vault');
      await b.getByLabel('Size of the pool').fill('512M');
      await b.getByRole('button', { name: 'Make the pool' }).click();
      await b.getByLabel('Address').fill(address);
      await b.getByLabel('Code of its invitation').fill(code);
      await b.getByRole('button', { name: 'Join' }).click();
      await expect(b.getByLabel('Volume at north')).toBeVisible();
    });

    await test.step('the right, the mirror, the first copy', async () => {
      await a.getByRole('button', { name: 'Allow it' }).click();
      const source = (await a.locator('code[aria-label="Source"]').textContent()) ?? '';
      expect(source).toBe('north:tank/mail');
      await b.getByLabel('Volume at north').fill(source);
      await b.getByLabel('At most this old').fill('20s');
      await b.getByRole('button', { name: 'Make the mirror' }).click();
      await b.getByRole('link', { name: 'See how far it is' }).click();
      await expect(b.getByText('Within objective').first()).toBeVisible();
    });
    console.log(`first protected volume: ${((Date.now() - began) / 1000).toFixed(1)} s from the first click`);

    await test.step('an update', async () => {
      content[0] ^= 1;
      north.write('tank/mail', content);
      await run(b, 'Update now', 'Update');
      await expect(b.getByRole('grid', { name: 'Transfers' }).getByText('update').first()).toBeVisible();
      await expect.poll(() => south.read('vault/mail').subarray(0, content.length).equals(content)).toBe(true);
    });

    await test.step('a drill', async () => {
      await run(b, 'Recovery drill', 'Begin the drill', false);
      await expect(b.getByText('was made of')).toBeVisible();
      await b.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click();
    });

    await test.step('failover: the first site is killed', async () => {
      await north.stop('SIGKILL');
      await expect(a.getByText('The connection to the daemon is lost since')).toBeVisible();
      await run(b, 'Break (take over)', 'Break', true, 'vault/mail');
      await expect(b.getByText('Broken off').first()).toBeVisible();
      content[1] ^= 1;
      south.write('vault/mail', content);
    });

    await test.step('the first site comes back, follows, and gets its role back', async () => {
      await north.start();
      await expect(a.getByText('The connection to the daemon is lost since')).toBeHidden({ timeout: 60_000 });
      await logInAgain(a, north.url);
      await a.goto(`${north.url}/mirrors/tank/mail`);
      await expect(a.getByText('Overtaken').first()).toBeVisible({ timeout: 60_000 });
      // Whoever took over lets the first site follow: the right for the way back was agreed on.
      await run(a, 'Resync', 'Resync', true, 'tank/mail');
      await expect(a.getByText('Replica of south:vault/mail').first()).toBeVisible({ timeout: 60_000 });
      await expect.poll(() => north.read('tank/mail').subarray(0, content.length).equals(content), { timeout: 60_000 }).toBe(true);
      await expect(a.getByRole('button', { name: 'Swap roles' })).toBeVisible({ timeout: 60_000 });
      await run(a, 'Swap roles', 'Swap', true, 'tank/mail');
      await b.goto(`${south.url}/mirrors/vault/mail`);
      await expect(b.getByText('Replica of north:tank/mail').first()).toBeVisible({ timeout: 60_000 });
      content[2] ^= 1;
      await expect.poll(() => written(() => north.write('tank/mail', content)), { timeout: 60_000 }).toBe(true);
      await expect(b.getByText('Within objective').first()).toBeVisible({ timeout: 60_000 });
    });
    // Whoever is told by the browser that the daemon is gone has been told what is so.
    const unexpected = said.flat().filter((line) => !/ERR_|Failed to load resource|401/.test(line));
    expect(unexpected).toEqual([]);
  } finally {
    await north.stop();
    await south.stop();
    gone(root);
  }
});

/** Presses a button of the mirror, reads the plan, types the name where it is asked for, and runs it. */
async function run(page: Page, label: string, verb: string, closes = true, typed?: string) {
  await page.getByRole('button', { name: label, exact: true }).first().click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByRole('heading', { name: 'What will happen' })).toBeVisible();
  await expect(dialog.locator('.plan li').first()).toBeVisible();
  if (typed) {
    await expect(dialog.getByRole('button', { name: verb, exact: true })).toBeDisabled();
    await dialog.getByLabel(`Type ${typed} to confirm`).fill(typed);
  }
  await dialog.getByRole('button', { name: verb, exact: true }).click();
  if (closes) await expect(dialog).toBeHidden();
}

/** Sessions end with the daemon. */
async function logInAgain(page: Page, url: string) {
  await page.goto(url);
  await page.getByLabel('Account').fill('admin');
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Log in' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Overview' })).toBeVisible();
}

function written(write: () => void): boolean {
  try {
    write();
    return true;
  } catch {
    return false;
  }
}
