import { hashKey, useQuery, type QueryClient, type QueryFunctionContext, type QueryKey } from '@tanstack/react-query';
import { answered, api, parts, type Mirror } from './client';

/** A mirror, and when this page heard of it: `lag_seconds` grows from then on. */
export type SeenMirror = Mirror & { seen: number };

export const seen = (mirror: Mirror): SeenMirror => ({ ...mirror, seen: Date.now() });

// Lists that events keep up to date are read again now and then all the same: what changes all the time is no event.
const SELDOM = 60_000;
const NOW_AND_THEN = 15_000;

/** What was taken away from this page: nobody asks for it while the page is left. */
const gone = new Set<string>();

/** Asks, unless it is known to be gone: then what was known stays until nobody looks. */
export const unlessGone =
  <T>(ask: () => Promise<T>) =>
  ({ client, queryKey }: QueryFunctionContext): T | Promise<T> =>
    gone.has(hashKey(queryKey)) ? (client.getQueryData<T>(queryKey) as T) : ask();

/** These were taken away here. They are forgotten once the page that shows them is left. */
export function nowGone(client: QueryClient, keys: QueryKey[]) {
  const cache = client.getQueryCache();
  for (const queryKey of keys) {
    const query = cache.find({ queryKey });
    if (!query) continue;
    gone.add(query.queryHash);
    const forget = () => {
      gone.delete(query.queryHash);
      client.removeQueries({ queryKey, exact: true });
    };
    if (query.getObserversCount() === 0) forget();
    else {
      const stop = cache.subscribe((event) => {
        if (event.type !== 'observerRemoved' || event.query !== query || query.getObserversCount() > 0) return;
        stop();
        forget();
      });
    }
  }
}

export const useMirrors = () =>
  useQuery({
    queryKey: ['mirrors'],
    queryFn: async () => (await answered(api.GET('/api/v1/mirrors'))).map(seen),
    refetchInterval: SELDOM,
  });

export const usePools = () =>
  useQuery({ queryKey: ['pools'], queryFn: () => answered(api.GET('/api/v1/pools')), refetchInterval: SELDOM });

export const usePool = (pool: string) =>
  useQuery({
    queryKey: ['pool', pool],
    queryFn: unlessGone(() => answered(api.GET('/api/v1/pools/{pool}', { params: { path: { pool } } }))),
    refetchInterval: NOW_AND_THEN,
  });

export const usePeers = () =>
  useQuery({ queryKey: ['peers'], queryFn: () => answered(api.GET('/api/v1/peers')), refetchInterval: NOW_AND_THEN });

export const usePeer = (peer: string) =>
  useQuery({
    queryKey: ['peer', peer],
    queryFn: unlessGone(() => answered(api.GET('/api/v1/peers/{peer}', { params: { path: { peer } } }))),
    refetchInterval: 2_000,
  });

export const useAlarms = () =>
  useQuery({ queryKey: ['alarms'], queryFn: () => answered(api.GET('/api/v1/alarms')), refetchInterval: SELDOM });

export const useAllAlarms = () =>
  useQuery({
    queryKey: ['alarms-all'],
    queryFn: () => answered(api.GET('/api/v1/alarms', { params: { query: { all: true } } })),
    refetchInterval: SELDOM,
  });

export const useOperations = () =>
  useQuery({ queryKey: ['operations'], queryFn: () => answered(api.GET('/api/v1/operations')), refetchInterval: SELDOM });

export const useVolumes = () =>
  useQuery({ queryKey: ['volumes'], queryFn: () => answered(api.GET('/api/v1/volumes')), refetchInterval: NOW_AND_THEN });

export const useVolume = (name: string) =>
  useQuery({
    queryKey: ['volume', name],
    queryFn: unlessGone(() => answered(api.GET('/api/v1/volumes/{pool}/{volume}', { params: { path: parts(name) } }))),
    refetchInterval: NOW_AND_THEN,
  });

export const useSnapshots = (name: string) =>
  useQuery({
    queryKey: ['snapshots', name],
    queryFn: unlessGone(() => answered(api.GET('/api/v1/volumes/{pool}/{volume}/snapshots', { params: { path: parts(name) } }))),
    refetchInterval: NOW_AND_THEN,
  });

/** Timetables by which snapshots are taken, of all volumes. */
export const useTimetables = () =>
  useQuery({ queryKey: ['snapshot-schedules'], queryFn: () => answered(api.GET('/api/v1/snapshot-schedules')), refetchInterval: NOW_AND_THEN });

export const useHosts = () =>
  useQuery({ queryKey: ['hosts'], queryFn: () => answered(api.GET('/api/v1/hosts')), refetchInterval: NOW_AND_THEN });

export const useHost = (host: string) =>
  useQuery({
    queryKey: ['host', host],
    queryFn: unlessGone(() => answered(api.GET('/api/v1/hosts/{host}', { params: { path: { host } } }))),
    refetchInterval: NOW_AND_THEN,
  });

export const useHistory = (volume?: string) =>
  useQuery({
    queryKey: ['history', volume ?? ''],
    queryFn: () => answered(api.GET('/api/v1/history', { params: { query: volume ? { volume } : {} } })),
    refetchInterval: NOW_AND_THEN,
  });

export const useLog = (volume?: string) =>
  useQuery({
    queryKey: ['log', volume ?? ''],
    queryFn: () => answered(api.GET('/api/v1/log', { params: { query: { ...(volume ? { volume } : {}), limit: 500 } } })),
    refetchInterval: NOW_AND_THEN,
  });

export const useDestinations = () =>
  useQuery({
    queryKey: ['destinations'],
    queryFn: () => answered(api.GET('/api/v1/destinations')),
    refetchInterval: NOW_AND_THEN,
  });

export const useSite = () =>
  useQuery({ queryKey: ['site'], queryFn: () => answered(api.GET('/api/v1/site')), staleTime: Infinity });

export const useSiteStatus = () =>
  useQuery({
    queryKey: ['site-status'],
    queryFn: () => answered(api.GET('/api/v1/site/status')),
    refetchInterval: NOW_AND_THEN,
  });

/** This site and those that it is paired with, whichever of them is shown. */
export const useSites = () =>
  useQuery({ queryKey: ['sites'], queryFn: () => answered(api.GET('/api/v1/sites')), refetchInterval: NOW_AND_THEN });

/** Destructive requests that wait. */
export const useDelayed = () =>
  useQuery({ queryKey: ['delayed'], queryFn: () => answered(api.GET('/api/v1/delayed')), refetchInterval: NOW_AND_THEN });

export const useAccelerator = () =>
  useQuery({
    queryKey: ['accelerator'],
    queryFn: () => answered(api.GET('/api/v1/accelerator')),
    refetchInterval: NOW_AND_THEN,
  });

/** What is asked for by the page of a volume. */
export const asksOfVolume = (name: string): QueryKey[] => [['volume', name], ['snapshots', name], ['dedup', name]];

/** Reads again what may have changed when somebody has done something. */
export async function readAgain(client: QueryClient) {
  await client.invalidateQueries({ predicate: (query) => query.queryKey[0] !== 'session' });
}
