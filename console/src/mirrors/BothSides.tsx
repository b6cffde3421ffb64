import type { Schemas, Snapshot } from '../api/client';
import { useSite, useSites, useTimetables, type SeenMirror } from '../api/queries';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { size } from '../words/quantities';
import { sentence } from '../words/sentence';
import { Ago } from '../words/Time';
import { timetableOf, useFarSide, type FarSide, type Timetable } from './far';
import { isConsistent, joined, type Point } from './points';

const MADE_BY: Record<Schemas['MadeBy'], string> = {
  person: 'a person',
  mirror: 'the mirror',
  kept: 'the mirror, kept for a person',
  common: 'another mirror',
};

const said = (timetable: Timetable | null | undefined) =>
  timetable ? `${timetable.schedule}${timetable.hook ? `, with the hook ${timetable.hook}` : ''}; ${timetable.retention} stay` : 'no timetable';

/** What one side says of a point. */
function marks(snapshot: Snapshot): string {
  return [
    snapshot.held && 'held',
    snapshot.rotates && 'rotates',
    snapshot.on_main_line === false && 'side branch',
    snapshot.unique_bytes ? `${size(snapshot.unique_bytes)} of its own` : null,
  ]
    .filter(Boolean)
    .join(', ');
}

const OneSide = ({ snapshot }: { snapshot: Snapshot | null }) =>
  snapshot === null ? (
    <>–</>
  ) : (
    <>
      by {snapshot.made_by ? MADE_BY[snapshot.made_by] : 'somebody'}
      <div className="quiet">{marks(snapshot)}</div>
    </>
  );

/** The points of both sides beside each other, as far as the other site lets this one look. */
export function BothSides({
  mirror,
  snapshots,
  destination,
}: {
  mirror: SeenMirror;
  snapshots: Snapshot[];
  destination: Schemas['MirrorDestination'] | null;
}) {
  const far = useFarSide(mirror);
  const here = useSite().data?.name ?? 'this site';
  const timetables = useTimetables();
  const isReplica = mirror.role === 'destination';
  const base = mirror.base_snapshot ?? destination?.base_snapshot;
  const kept = new Map((destination?.kept ?? []).map((each) => [each.name, each.why]));
  // Without a word of the other site all that is known is what both have agreed on.
  const points = far.data ? joined(snapshots, far.data.snapshots) : snapshots.map((snapshot) => ({ uuid: snapshot.uuid, here: snapshot, there: null }));
  const retention = isReplica ? mirror.retention : far.data?.mirror?.retention;

  const one = (point: Point) => (point.here ?? point.there)!;
  const purpose = ({ name }: Snapshot) =>
    name === base ? 'base of the next update' : kept.has(name) ? `kept for the mirror: ${kept.get(name)}` : '';
  const place = (point: Point) =>
    far.data ? (point.here && point.there ? 'both sites' : point.here ? `only ${here}` : `only ${far.peer}`) : one(point).name === base ? 'both sites' : `${here}, at least`;
  const columns: Column<Point>[] = [
    {
      title: 'Point',
      width: 28,
      value: (point) => `${one(point).name}${isConsistent(one(point).name) ? ' application-consistent' : ''}`,
      cell: (point) => (
        <>
          {one(point).name}
          {isConsistent(one(point).name) && <div className="quiet">application-consistent</div>}
          {point.here && point.there && point.here.name !== point.there.name && <div className="quiet">there: {point.there.name}</div>}
        </>
      ),
    },
    { title: 'Data of', width: 14, value: (point) => one(point).created_at, cell: (point) => <Ago at={one(point).created_at} /> },
    {
      title: 'Is at',
      width: 20,
      value: (point) => `${place(point)} ${purpose(one(point))}`,
      cell: (point) => (
        <>
          {place(point)}
          <div className="quiet">{purpose(one(point))}</div>
        </>
      ),
    },
    { title: `${here} (here)`, width: 19, value: (point) => point.here && `${point.here.made_by} ${marks(point.here)}`, cell: (point) => <OneSide snapshot={point.here} /> },
    { title: far.peer, width: 19, value: (point) => point.there && `${point.there.made_by} ${marks(point.there)}`, cell: (point) => <OneSide snapshot={point.there} /> },
  ];
  return (
    <>
      <Facts
        facts={[
          ['Common snapshot', base ?? 'none yet'],
          [`Snapshots at ${here}`, timetables.data && said(timetableOf(timetables.data, mirror.name))],
          [`Snapshots at ${far.peer}`, far.data && said(far.data.timetable)],
          ['The replica keeps', isReplica || far.data?.mirror ? (retention ?? 'its newest point, and what persons made') : null],
          ['Updates begin', isReplica ? null : far.data?.mirror && (far.data.mirror.schedule ?? 'only when asked for')],
          ['Kept at the source since', destination?.since && <Ago key="since" at={destination.since} />],
          ['What keeping it costs', destination?.pinned_bytes !== null && destination?.pinned_bytes !== undefined ? size(destination.pinned_bytes) : null],
          ['Released', destination?.released && `${destination.released.why}`],
        ]}
      />
      <Unseen far={far} />
      <DataTable
        label={far.data ? `Points of ${mirror.name} at ${here} and of ${far.volume} at ${far.peer}` : `Snapshots of ${mirror.name} at this site`}
        rows={points}
        columns={far.data ? columns : columns.slice(0, -1)}
        rowKey={(point) => point.uuid}
        sortedBy={1}
        descending
        empty="There are no snapshots yet."
      />
    </>
  );
}

/** Why the other side is not shown, and what to do about it; nothing where it is. */
function Unseen({ far }: { far: FarSide }) {
  const own = useSites().data?.find((site) => site.state === 'here')?.name ?? 'PEER';
  if (far.data || !far.isKnown) return null;
  if (far.site?.state === 'closed') {
    return (
      <p className="quiet gap-below">
        {far.peer} does not let this site look, so its points are not shown. An administrator there allows it: in its console under Peers and paths, {own}, Settings; or <code>farside peer set {own} --role viewer</code>
      </p>
    );
  }
  const why =
    far.site === null
      ? `${own} is not paired with it.`
      : far.site.state === 'away'
        ? sentence(far.site.why ?? 'there is no session')
        : far.error
          ? sentence(far.error instanceof Error ? far.error.message : String(far.error))
          : null;
  return why && <p className="quiet gap-below">What {far.peer} has is not shown: {why}</p>;
}
