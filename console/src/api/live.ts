import { useQueryClient, type QueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import type { Mirror } from './client';
import { heard } from './heard';
import { seen } from './queries';
import { through } from './site';

/** Lists that events keep up to date, and by what an event finds its thing there. */
const LISTS = {
  mirror: { list: 'mirrors', key: (thing: Mirror) => `${thing.name} ${thing.id} ${thing.role === 'source'}` },
  peer: { list: 'peers', key: (thing: { id: string }) => thing.id },
  pool: { list: 'pools', key: (thing: { name: string }) => thing.name },
  alarm: { list: 'alarms', key: (thing: { id: string }) => thing.id },
  operation: { list: 'operations', key: (thing: { id: string }) => thing.id },
} as const;
type Kind = keyof typeof LISTS;
const KINDS = Object.keys(LISTS) as Kind[];

/** Events of this long are shown at once: a thousand mirrors that change together are drawn once. */
const TOGETHER = 200;
/** How long after a stream that ended for good it is tried anew. */
const ANEW = 3_000;

type Thing = Record<string, unknown>;

/** A list with the things of these events in it: changed ones in their place, new ones at its end, without those that are gone. */
export function patched(list: Thing[], kind: Kind, changes: Map<string, Thing | null>): Thing[] {
  const keyOf = LISTS[kind].key as (thing: Thing) => string;
  const left = new Map(changes);
  const kept = list.flatMap((old) => {
    const key = keyOf(old);
    if (!left.has(key)) return [old];
    const now = left.get(key);
    left.delete(key);
    return now ? [now] : [];
  });
  for (const thing of left.values()) if (thing) kept.push(thing);
  return kept;
}

function follow(client: QueryClient): () => void {
  const changes = new Map<Kind, Map<string, Thing | null>>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let again: ReturnType<typeof setTimeout> | undefined;
  let source: EventSource;

  const show = () => {
    timer = undefined;
    for (const [kind, things] of changes) {
      const { list } = LISTS[kind];
      client.setQueryData<Thing[]>([list], (old) => (old ? patched(old, kind, things) : old));
      if (kind === 'mirror') void client.invalidateQueries({ queryKey: ['history'] });
      if (kind === 'alarm') void client.invalidateQueries({ queryKey: ['alarms-all'] });
      if (kind === 'mirror' || kind === 'alarm') void client.invalidateQueries({ queryKey: ['site-status'] });
    }
    changes.clear();
  };
  const note = (kind: Kind, key: string, thing: Thing | null) => {
    let things = changes.get(kind);
    if (!things) changes.set(kind, (things = new Map()));
    things.set(key, thing);
    timer ??= setTimeout(show, TOGETHER);
  };
  const open = () => {
    source = new EventSource(through('/api/v1/events'));
    source.onopen = () => heard('events', true);
    source.onerror = () => {
      heard('events', false);
      if (source.readyState !== EventSource.CLOSED) return;
      // It was refused: the session may have ended.
      void client.invalidateQueries({ queryKey: ['session'] });
      again = setTimeout(open, ANEW);
    };
    source.addEventListener('reset', () => {
      heard('events', true);
      for (const kind of KINDS) void client.invalidateQueries({ queryKey: [LISTS[kind].list] });
    });
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        const thing = JSON.parse(event.data) as Thing;
        const key = (LISTS[kind].key as (thing: Thing) => string)(thing);
        note(kind, key, kind === 'mirror' ? (seen(thing as unknown as Mirror) as unknown as Thing) : thing);
      });
    }
    source.addEventListener('gone', (event) => {
      const { kind, key } = JSON.parse(event.data) as { kind: Kind; key: string };
      if (kind in LISTS) note(kind, key, null);
    });
  };
  open();
  return () => {
    source.close();
    // Whoever has logged out waits for nothing.
    heard('events', true);
    clearTimeout(timer);
    clearTimeout(again);
  };
}

/** Keeps the lists up to date for as long as the page is shown. */
export function useLive() {
  const client = useQueryClient();
  useEffect(() => follow(client), [client]);
}
