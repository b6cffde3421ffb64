import type { Schemas } from '../api/client';
import { SITE } from '../api/site';

type Drill = Schemas['Drill'];

/** A drill that was begun in this browser: the API tells nobody else which volumes are of drills. */
export interface Held {
  drill: Drill;
  /** When it began, milliseconds. */
  began: number;
  /** Its volume goes when it was not kept for so long, seconds; null: it stays. */
  lease: number | null;
  /** When that is, milliseconds; null: it stays. */
  until: number | null;
}

const KEY = `farside drills ${SITE}`;
/** More than anybody has under way at once. */
const REMEMBERED = 50;

export function heldDrills(): Held[] {
  try {
    const read: unknown = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return Array.isArray(read) ? (read as Held[]) : [];
  } catch {
    // Storage that is switched off, or that something else has written to.
    return [];
  }
}

function remember(held: Held[]) {
  try {
    localStorage.setItem(KEY, JSON.stringify(held.slice(-REMEMBERED)));
  } catch {
    // Then only an administrator ends it, as a volume.
  }
}

const after = (lease: number | null) => (lease === null ? null : Date.now() + lease * 1000);

export const began = (drill: Drill, lease: number | null) => remember([...heldDrills(), { drill, began: Date.now(), lease, until: after(lease) }]);

export const kept = (uuid: string) => remember(heldDrills().map((held) => (held.drill.uuid === uuid ? { ...held, until: after(held.lease) } : held)));

export const forgotten = (uuid: string) => remember(heldDrills().filter(({ drill }) => drill.uuid !== uuid));
