// Sizes, rates and durations in the units of the command line.

const UNITS = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return '–';
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  let value = bytes;
  let unit = '';
  for (unit of UNITS) {
    value /= 1024;
    if (value < 1024) break;
  }
  return `${value.toFixed(1)} ${unit}`;
}

export const rate = (bytes: number | null | undefined) =>
  bytes === null || bytes === undefined ? '–' : `${size(bytes)}/s`;

const two = (value: number) => String(Math.floor(value)).padStart(2, '0');

/** `0.25 s`, `42 s`, `3m05s`, `2h10m`, `3d04h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h${two((whole % 3600) / 60)}m`;
  return `${Math.floor(whole / 86_400)}d${two((whole % 86_400) / 3600)}h`;
}

/** The same for what is looked at while it grows: whole seconds. */
export const age = (seconds: number | null | undefined) =>
  seconds !== null && seconds !== undefined && seconds < 10 ? `${Math.max(0, Math.floor(seconds))} s` : duration(seconds);

export const milliseconds = (seconds: number | null | undefined) =>
  seconds === null || seconds === undefined ? '–' : `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 1)} ms`;

export const percent = (part: number, whole: number) => (whole > 0 ? `${Math.round((part / whole) * 100)} %` : '–');

export const count = (value: number | null | undefined) =>
  value === null || value === undefined ? '–' : value.toLocaleString('en');

/** Reads `10G` as the command line does; a sentence if it cannot be read. */
export function readSize(text: string): number | string {
  const match = /^(\d+)(B|K|k|KiB|M|MiB|G|GiB|T|TiB|P|PiB)?$/.exec(text.trim());
  if (!match) return /^\d+[kKMGTP]B$/.test(text.trim()) ? 'Sizes are binary: write 10G, not 10GB.' : 'Write a size as 512M or 10G.';
  const power = match[2] && match[2] !== 'B' ? 'KMGTP'.indexOf(match[2][0]!.toUpperCase()) + 1 : 0;
  return Number(match[1]) * 1024 ** power;
}

/** Reads `30s`, `15m`, `1h30m`; a sentence if it cannot be read. */
export function readDuration(text: string): number | string {
  const match = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text.trim());
  if (!match || text.trim() === '') return 'Write a duration as 30s, 15m or 1h.';
  const [d, h, m, s] = match.slice(1).map((part) => Number(part ?? 0)) as [number, number, number, number];
  const seconds = d * 86_400 + h * 3600 + m * 60 + s;
  return seconds > 0 ? seconds : 'It must be more than zero.';
}
