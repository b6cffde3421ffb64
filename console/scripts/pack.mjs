// Compresses what `vite build` has written, into the directory of the committed files, with the list that the daemon includes.
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';

const [from, to] = process.argv.slice(2);
const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};
/** All of it, bytes compressed; and the scripts that the first page loads. */
const LIMIT = 500_000;
const FIRST_LIMIT = 250_000;

function files(directory) {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? files(join(directory, entry.name)) : [join(directory, entry.name)],
  );
}

rmSync(to, { recursive: true, force: true });
const packed = files(from)
  .map((path) => {
    const name = relative(from, path);
    const type = TYPES[/\.\w+$/.exec(name)?.[0] ?? ''];
    if (!type) throw new Error(`what is ${name}? scripts/pack.mjs knows no media type for it`);
    const content = readFileSync(path);
    if (name.endsWith('.css') && /url\(["']?data:/.test(content)) throw new Error(`${name} has data: in it, which the page's policy refuses`);
    const bytes = brotliCompressSync(content, {
      params: {
        [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
        [constants.BROTLI_PARAM_LGWIN]: 22,
        [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
        [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
      },
    });
    const target = join(to, `${name}.br`);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, bytes);
    return { name, type, bytes, etag: createHash('sha256').update(content).digest('hex').slice(0, 32) };
  })
  .sort((a, b) => (a.name < b.name ? -1 : 1));

const list = packed.map(
  ({ name, type, etag }) =>
    `    File { name: ${JSON.stringify(name)}, media_type: ${JSON.stringify(type)}, etag: "\\"${etag}\\"", bytes: include_bytes!(${JSON.stringify(`${name}.br`)}) },\n`,
);
writeFileSync(join(to, 'files.rs'), `// Written by scripts/build-console.\n&[\n${list.join('')}]\n`);

const sum = (of) => of.reduce((all, { bytes }) => all + bytes.length, 0);
const page = readFileSync(join(from, 'index.html'), 'utf8');
const first = packed.filter(({ name }) => name.endsWith('.js') && page.includes(name));
const kilobytes = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
console.log(`console: ${packed.length} files, ${kilobytes(sum(packed))} compressed; scripts of the first page ${kilobytes(sum(first))}`);
if (sum(packed) > LIMIT) throw new Error(`all files together are over ${kilobytes(LIMIT)}`);
if (sum(first) > FIRST_LIMIT) throw new Error(`the scripts of the first page are over ${kilobytes(FIRST_LIMIT)}`);
