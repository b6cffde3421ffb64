import { expect, test } from '@playwright/test';
import { patched } from '../src/api/live';
import type { Plan, Snapshot } from '../src/api/client';
import type { SeenMirror } from '../src/api/queries';
import { askedWhen, inWords, readWhen } from '../src/forms/when';
import { groupOf, instants, together, type Member } from '../src/mirrors/group';
import { isConsistent, joined, remote } from '../src/mirrors/points';
import { judge } from '../src/mirrors/verdict';
import { rateOfOneConnection, rateOfWindow, windowFor } from '../src/peers/line';
import { rateAt, readRate, readThrottle } from '../src/peers/throttle';
import { duration, readDuration, readSize, size } from '../src/words/quantities';

test('sizes and durations are those of the command line', () => {
  expect(size(10 * 2 ** 30)).toBe('10.0 GiB');
  expect(size(512)).toBe('512 B');
  expect(size(null)).toBe('–');
  expect([0.25, 42.4, 185, 7800, 273_600].map(duration)).toEqual(['0.25 s', '42 s', '3m05s', '2h10m', '3d04h']);
  expect(['4096', '4k', '512M', '10G', '10GiB'].map(readSize)).toEqual([4096, 4096, 512 * 2 ** 20, 10 * 2 ** 30, 10 * 2 ** 30]);
  expect(readSize('10GB')).toContain('10G');
  expect(typeof readSize('1.5G')).toBe('string');
  expect(['30s', '15m', '1h30m', '2d'].map(readDuration)).toEqual([30, 900, 5400, 172_800]);
  expect(['', '0s', '30', 'soon'].every((text) => typeof readDuration(text) === 'string')).toBe(true);
});

test('of throttles by hours the last that fits holds', () => {
  expect([readRate('4MB/s'), readRate('10Mbit/s'), readRate('512KiB/s'), readRate('unlimited')]).toEqual([4e6, 1.25e6, 524_288, null]);
  const throttle = readThrottle('unlimited,08:00-18:00=1MB/s,sat+sun=unlimited,zone=Europe/Berlin');
  expect(throttle.zone).toBe('Europe/Berlin');
  expect([rateAt(throttle, 0, 7 * 60), rateAt(throttle, 0, 8 * 60), rateAt(throttle, 0, 18 * 60), rateAt(throttle, 5, 9 * 60)]).toEqual([null, 1e6, null, null]);
  const night = readThrottle('4MB/s,fri@22:00-06:00=1MB/s');
  expect([rateAt(night, 4, 21 * 60), rateAt(night, 4, 23 * 60), rateAt(night, 5, 5 * 60), rateAt(night, 5, 23 * 60)]).toEqual([4e6, 1e6, 1e6, 4e6]);
  const week = readThrottle('4MB/s,mon-fri@08:00-18:00=1MB/s');
  expect([rateAt(week, 4, 600), rateAt(week, 5, 600)]).toEqual([1e6, 4e6]);
});

const mirror = (more: Partial<SeenMirror>) =>
  ({ name: 'p/v', id: 'x', role: 'destination', state: 'mirrored', source: 'a:p/v', destination: 'p/v', lag_seconds: 5, objective_seconds: 10, content_root: 'ab', seen: 1000, ...more }) as SeenMirror;

test('green is what is proven, and only while the daemon is heard', () => {
  expect(judge(mirror({}), 1000, false).tone).toBe('proven');
  expect(judge(mirror({}), 7000, false).verdict).toBe('late');
  expect(judge(mirror({}), 1000, true).verdict).toBe('unknown');
  expect(judge(mirror({ objective_seconds: null }), 1000, false).tone).toBe('neutral');
  expect(judge(mirror({ content_root: null }), 1000, false).tone).toBe('neutral');
  expect(judge(mirror({ lag_seconds: null }), 1000, false).tone).toBe('neutral');
  expect(judge(mirror({ state: 'quiesced', lag_seconds: 500 }), 1000, false).verdict).toBe('attention');
  expect(judge(mirror({ role: 'source', lag_seconds: null }), 1000, false).tone).toBe('neutral');
  expect(judge(mirror({ why: 'the peer does not answer' }), 1000, false).tone).toBe('warning');
  for (const state of ['uninitialized', 'initializing', 'broken-off', 'quiesced'] as const) {
    expect(judge(mirror({ state }), 1000, false).tone).not.toBe('proven');
  }
});

test('events change a list in its place', () => {
  const list = [{ id: '1', v: 1 }, { id: '2', v: 1 }, { id: '3', v: 1 }];
  const changes = new Map<string, Record<string, unknown> | null>([['2', { id: '2', v: 2 }], ['3', null], ['4', { id: '4', v: 1 }]]);
  expect(patched(list, 'peer', changes)).toEqual([{ id: '1', v: 1 }, { id: '2', v: 2 }, { id: '4', v: 1 }]);
});

test('points of both sides are one list, each point once', () => {
  const snapshot = (uuid: string, name: string) => ({ uuid, name }) as Snapshot;
  const points = joined([snapshot('1', 'monday'), snapshot('2', 'here')], [snapshot('3', 'there'), snapshot('1', 'monday')]);
  expect(points.map(({ uuid, here, there }) => [uuid, here?.name, there?.name])).toEqual([
    ['1', 'monday', 'monday'],
    ['2', 'here', undefined],
    ['3', undefined, 'there'],
  ]);
  expect(joined([], [])).toEqual([]);
  expect(remote('north:tank/mail')).toEqual({ peer: 'north', volume: 'tank/mail' });
  expect(['app-2026-11-23T00:00:00Z', 'app-2026-11-23T00:00:00Z-2'].every(isConsistent)).toBe(true);
  expect(['auto-2026-11-23T00:00:00Z', 'app-monday', 'my-app-2026-11-23T00:00:00Z'].some(isConsistent)).toBe(false);
});

test('schedules are read and asked for as the API says them', () => {
  expect(readWhen('every 1h 30m')).toEqual({ kind: 'every', time: '1h30m', zone: '' });
  expect(readWhen('rpo 30s')).toEqual({ kind: 'rpo', time: '30s', zone: '' });
  expect(readWhen('*/15 8-18 * * 1-5 Europe/Berlin')).toEqual({ kind: 'cron', time: '*/15 8-18 * * 1-5', zone: 'Europe/Berlin' });
  expect([readWhen(null), readWhen('on request')].map(({ kind }) => kind)).toEqual(['asked', 'asked']);
  expect(askedWhen(readWhen('every 1h 30m'))).toEqual({ every_seconds: 5400 });
  expect(askedWhen(readWhen('rpo 30s'))).toEqual({ rpo_seconds: 30 });
  expect(askedWhen(readWhen('0 3 * * * UTC'))).toEqual({ schedule: '0 3 * * *', time_zone: 'UTC' });
  expect(askedWhen(readWhen('0 3 * * *'))).toEqual({ schedule: '0 3 * * *' });
  expect(askedWhen(readWhen(null))).toEqual({ every_seconds: 0 });
  expect([askedWhen({ kind: 'cron', time: '0 3 *', zone: '' }), askedWhen({ kind: 'every', time: 'soon', zone: '' })].every((said) => typeof said === 'string')).toBe(true);
  expect(inWords({ every_seconds: 900 })).toBe('every 15m00s');
  expect(inWords({ schedule: '0 3 * * *', time_zone: 'UTC' })).toBe('by the timetable 0 3 * * *, time of UTC');
});

test('a line, by arithmetic', () => {
  const line = { rateBits: 45e6, rttSeconds: 0.1, loss: 0 };
  expect(windowFor(line)).toBe(562_500);
  expect(rateOfWindow(65_536, 0.1)).toBeCloseTo(5.24e6, -4);
  expect(rateOfOneConnection(line)).toBe(45e6);
  expect(rateOfOneConnection({ rateBits: 155e6, rttSeconds: 0.1, loss: 0.001 })).toBeLessThan(10e6);
});

test('a group is broken off at the newest moment that all of it has', () => {
  const snapshot = (name: string, minute: number, more: Partial<Snapshot> = {}) =>
    ({ name, created_at: `2026-11-26T10:${minute}:00Z`, made_by: name.startsWith('mirror-') ? 'mirror' : 'person', on_main_line: true, ...more }) as Snapshot;
  const member = (name: string, snapshots: Snapshot[], more: Partial<SeenMirror> = {}): Member => ({ mirror: mirror({ name, group: 'shop', ...more }), snapshots });
  const db = member('q/db', [snapshot('monday', 10), snapshot('mirror-1', 20), snapshot('mirror-3', 30)]);
  const log = member('q/log', [snapshot('monday', 10), snapshot('mirror-2', 20), snapshot('mirror-4', 31)]);
  expect(instants([db, log])).toEqual([
    { at: '2026-11-26T10:20:00Z', names: ['mirror-1', 'mirror-2'] },
    { at: '2026-11-26T10:10:00Z', names: ['monday', 'monday'] },
  ]);
  // A name that was given again is another moment; what lies on a side branch is not what hosts saw.
  expect(instants([member('q/db', [snapshot('monday', 10)]), member('q/log', [snapshot('monday', 11)])])).toContain('no snapshot of one moment');
  expect(instants([db, member('q/log', [snapshot('monday', 10, { on_main_line: false })])])).toContain('no snapshot of one moment');
  // What is broken off already decides.
  const broken = member('q/db', db.snapshots, { state: 'broken-off', current_snapshot: 'monday' });
  expect(instants([broken, log])).toEqual([{ at: '2026-11-26T10:10:00Z', names: ['monday', 'monday'] }]);
  const other = member('q/log', log.snapshots, { state: 'broken-off', current_snapshot: 'mirror-2' });
  expect(instants([broken, other])).toContain('at different points');

  const all = [db.mirror, log.mirror, mirror({ name: 'q/new', group: 'shop', state: 'uninitialized' }), mirror({ name: 'q/else' })];
  expect(groupOf(db.mirror, all).map(({ name }) => name)).toEqual(['q/db', 'q/log']);
  expect(groupOf(all[3]!, all)).toEqual([]);

  const plan = (more: Partial<Plan>) => ({ action: '', would: [], lost: [], ...more }) as Plan;
  const whole = together('break', 'two', [
    ['q/db', plan({ would: ['q/db is writable'], lost: ['a minute'], lost_bytes: 5 })],
    ['q/log', plan({ would: ['writable'], lost_bytes: 2, refused: 'it is fenced' })],
  ]);
  expect(whole).toMatchObject({ would: ['two', 'q/db is writable', 'q/log: writable'], lost: ['q/db: a minute'], lost_bytes: 7, refused: 'q/log: it is fenced' });
});
