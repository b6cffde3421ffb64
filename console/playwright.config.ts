import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: 'tests',
  // Real daemons, and a machine that may be busy.
  timeout: 180_000,
  expect: { timeout: 20_000 },
  workers: 1,
  reporter: [['list']],
  use: {
    browserName: 'chromium',
    // The distribution's: no browser is downloaded.
    launchOptions: { executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] },
    // Each site has just made its certificate.
    ignoreHTTPSErrors: true,
    viewport: { width: 1280, height: 900 },
    trace: 'retain-on-failure',
  },
});
