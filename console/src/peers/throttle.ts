/** A limit as it is set, by hours: `4MB/s,mon-fri@08:00-18:00=1MB/s,zone=Europe/Berlin`. Of rules that fit, the last one holds. */
export interface Throttle {
  /** Bytes per second; null: unlimited. */
  usual: number | null;
  rules: { days: number[] | null; from: number; to: number; rate: number | null }[];
  zone: string | null;
}

const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'];
const SCALES: Record<string, number> = { '': 1, k: 1e3, M: 1e6, G: 1e9, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3 };

/** `4MB/s`, `10Mbit/s`, `10Mb/s` in bytes per second; null: unlimited; undefined: not read. */
export function readRate(text: string): number | null | undefined {
  if (text.trim() === 'unlimited') return null;
  const match = /^(\d+(?:\.\d+)?)\s*(k|M|G|Ki|Mi|Gi)?(B|bit|b)\/s$/.exec(text.trim());
  if (!match) return undefined;
  const value = Number(match[1]) * SCALES[match[2] ?? '']!;
  return match[3] === 'B' ? value : value / 8;
}

function readDays(text: string): number[] | null {
  const days = text.split('+').flatMap((part) => {
    const [first, last] = part.split('-').map((day) => DAYS.indexOf(day));
    if (first === undefined || first < 0) return [];
    if (last === undefined) return [first];
    const all = [];
    for (let day = first; ; day = (day + 1) % 7) {
      all.push(day);
      if (day === last || all.length === 7) return all;
    }
  });
  return days.length > 0 ? days : null;
}

const minutes = (text: string) => Number(text.slice(0, 2)) * 60 + Number(text.slice(3));

export function readThrottle(text: string): Throttle {
  const throttle: Throttle = { usual: null, rules: [], zone: null };
  for (const part of text.split(',')) {
    const at = part.indexOf('=');
    if (at < 0) {
      throttle.usual = readRate(part) ?? null;
    } else if (part.startsWith('zone=')) {
      throttle.zone = part.slice(5);
    } else {
      const when = part.slice(0, at);
      const hours = /(\d\d:\d\d)-(\d\d:\d\d)$/.exec(when);
      const days = readDays(when.replace(/@?\d\d:\d\d-\d\d:\d\d$/, ''));
      throttle.rules.push({
        days,
        from: hours ? minutes(hours[1]!) : 0,
        to: hours ? minutes(hours[2]!) : 24 * 60,
        rate: readRate(part.slice(at + 1)) ?? null,
      });
    }
  }
  return throttle;
}

/** What holds on a day (0 is Monday) at a minute of it. */
export function rateAt(throttle: Throttle, day: number, minute: number): number | null {
  let rate = throttle.usual;
  for (const rule of throttle.rules) {
    const isOn = (which: number) => rule.days === null || rule.days.includes((which + 7) % 7);
    const fits =
      rule.from < rule.to
        ? isOn(day) && minute >= rule.from && minute < rule.to
        : (isOn(day) && minute >= rule.from) || (isOn(day - 1) && minute < rule.to);
    if (fits) rate = rule.rate;
  }
  return rate;
}
