import type { Snapshot } from '../api/client';

/** One point in time, as each side has it. */
export interface Point {
  uuid: string;
  here: Snapshot | null;
  there: Snapshot | null;
}

/** The points of both sides, each once: what identifies a snapshot travels with it. */
export function joined(here: Snapshot[], there: Snapshot[]): Point[] {
  const far = new Map(there.map((snapshot) => [snapshot.uuid, snapshot]));
  const points: Point[] = here.map((snapshot) => ({ uuid: snapshot.uuid, here: snapshot, there: far.get(snapshot.uuid) ?? null }));
  const known = new Set(here.map(({ uuid }) => uuid));
  return [...points, ...there.filter(({ uuid }) => !known.has(uuid)).map((snapshot) => ({ uuid: snapshot.uuid, here: null, there: snapshot }))];
}

/** Whether an application was frozen for it: a timetable calls it so then, and the name travels (`app-2026-11-23T00:00:00Z`). */
export const isConsistent = (name: string) => /^app-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(-\d+)?$/.test(name);

/** The parts of `PEER:POOL/VOL`. */
export function remote(name: string): { peer: string; volume: string } {
  const at = name.indexOf(':');
  return { peer: name.slice(0, at), volume: name.slice(at + 1) };
}
