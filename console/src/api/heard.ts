import { useSyncExternalStore } from 'react';

// Whether the daemon is heard: its events come, and it answers. A network that fails silently shows in the answers first.
const ways = { events: true, answers: true };
let lostSince: number | null = null;
const listeners = new Set<() => void>();

export function heard(way: keyof typeof ways, is: boolean) {
  ways[way] = is;
  const since = ways.events && ways.answers ? null : (lostSince ?? Date.now());
  if (since === lostSince) return;
  lostSince = since;
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** Since when nothing has been heard of the daemon; null: it is there. */
export const useLostSince = () => useSyncExternalStore(subscribe, () => lostSince);
