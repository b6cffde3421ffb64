import { duration, readDuration } from '../words/quantities';

/** When something begins by itself, as it is filled in. */
export interface When {
  kind: 'rpo' | 'every' | 'cron' | 'asked';
  /** A duration, or the five fields of cron. */
  time: string;
  /** Of a timetable; empty: the daemon's. */
  zone: string;
}

export const NEVER: When = { kind: 'asked', time: '', zone: '' };

/** A schedule as the API says it: `rpo 30s`, `every 1h 30m`, `0 3 * * * Europe/Berlin`. */
export function readWhen(schedule: string | null | undefined): When {
  const text = schedule ?? '';
  if (text === '' || text === 'on request') return NEVER;
  const [word = '', ...rest] = text.split(/\s+/);
  if (word === 'rpo' || word === 'every') return { kind: word, time: rest.join(''), zone: '' };
  return { kind: 'cron', time: [word, ...rest.slice(0, 4)].join(' '), zone: rest.slice(4).join(' ') };
}

export interface Asked {
  rpo_seconds?: number;
  every_seconds?: number;
  schedule?: string;
  time_zone?: string;
}

/** What a request says of it; a sentence if it cannot be read. */
export function askedWhen({ kind, time, zone }: When): Asked | string {
  if (kind === 'asked') return { every_seconds: 0 };
  if (kind === 'cron') {
    if (time.trim().split(/\s+/).length !== 5) return 'Write five fields: minute, hour, day, month, day of the week.';
    return { schedule: time.trim(), ...(zone.trim() && { time_zone: zone.trim() }) };
  }
  const seconds = readDuration(time);
  return typeof seconds === 'string' ? seconds : kind === 'rpo' ? { rpo_seconds: seconds } : { every_seconds: seconds };
}

/** `every 15m`, `by the timetable 0 3 * * *`. */
export function inWords(asked: Asked): string {
  if (asked.schedule) return `by the timetable ${asked.schedule}${asked.time_zone ? `, time of ${asked.time_zone}` : ''}`;
  return `every ${duration(asked.every_seconds)}`;
}
