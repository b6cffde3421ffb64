import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';
import { prunedStyles, withoutFonts } from './scripts/styles.ts';

// `FARSIDE=https://127.0.0.1:7443 npm run dev` serves the sources against a daemon.
const daemon = process.env.FARSIDE ?? 'https://127.0.0.1:7443';

export default defineConfig({
  plugins: [withoutFonts(), react(), prunedStyles()],
  build: {
    outDir: 'build',
    // Nothing is put into the script as data: the policy of the page would refuse it.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    target: 'es2022',
  },
  server: { proxy: { '/api': { target: daemon, secure: false, changeOrigin: true, headers: { origin: daemon } } } },
});
