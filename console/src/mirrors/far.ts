import { useQuery } from '@tanstack/react-query';
import { answeredElsewhere, apiOf, Failure, parts, type Schemas, type Snapshot } from '../api/client';
import { usePeers, useSites, type SeenMirror } from '../api/queries';
import { remote } from './points';

type SiteSeen = Schemas['SiteSeen'];
export type Timetable = Schemas['SnapshotSchedule'];

/** What the site at the other end has of a mirror. */
export interface FarData {
  snapshots: Snapshot[];
  /** Its timetable of snapshots; null: it has none. */
  timetable: Timetable | null;
  /** The mirror as its replica's site has it; null where that is here. */
  mirror: Schemas['Mirror'] | null;
}

export interface FarSide {
  peer: string;
  volume: string;
  /** The site among those that this daemon shows; null: it is not among them, or that is not known yet. */
  site: SiteSeen | null;
  isKnown: boolean;
  data: FarData | undefined;
  error: unknown;
}

/** The timetable that takes a volume's snapshots: its own, or another's that takes it along. */
export const timetableOf = (all: Timetable[], volume: string) =>
  all.find((each) => each.volume === volume) ?? all.find((each) => each.others?.includes(volume)) ?? null;

/**
 * The other side of a mirror, by the view of several sites. The peer is found by its identity: so the other side of a site that is
 * looked at from afar may be this one, or a third that this one may look at.
 */
export function useFarSide(mirror: SeenMirror): FarSide {
  const isReplica = mirror.role === 'destination';
  const { peer, volume } = remote(isReplica ? mirror.source : mirror.destination);
  const peers = usePeers();
  const sites = useSites();
  const id = peers.data?.find(({ name }) => name === peer)?.id;
  const site = sites.data?.find((each) => each.id === id) ?? null;
  const isOpen = site?.state === 'here' || site?.state === 'seen';
  const far = useQuery({
    queryKey: ['far', site?.id ?? '', mirror.id, mirror.role],
    enabled: isOpen,
    refetchInterval: 15_000,
    retry: false,
    queryFn: async (): Promise<FarData> => {
      if (!site) throw new Failure('failed', 'It is not known.');
      const at = apiOf(site.state === 'here' ? '' : site.name);
      const [snapshots, timetables, mirrors] = await Promise.all([
        answeredElsewhere(at.GET('/api/v1/volumes/{pool}/{volume}/snapshots', { params: { path: parts(volume) } })),
        answeredElsewhere(at.GET('/api/v1/snapshot-schedules')),
        isReplica ? [] : answeredElsewhere(at.GET('/api/v1/mirrors', { params: { query: { role: 'destination' } } })),
      ]);
      return { snapshots, timetable: timetableOf(timetables, volume), mirror: mirrors.find((each) => each.id === mirror.id) ?? null };
    },
  });
  return {
    peer,
    volume,
    site,
    isKnown: peers.data !== undefined && sites.data !== undefined,
    data: isOpen ? far.data : undefined,
    error: isOpen ? far.error : null,
  };
}
