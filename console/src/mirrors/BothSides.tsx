import type { Schemas, Snapshot } from '../api/client';
import type { SeenMirror } from '../api/queries';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { size } from '../words/quantities';
import { Ago } from '../words/Time';

const MADE_BY: Record<Schemas['MadeBy'], string> = {
  person: 'a person',
  mirror: 'the mirror',
  kept: 'the mirror, kept for a person',
  common: 'another mirror',
};

/** The snapshots of this side, and what is known of the other: which one both hold, and what the source keeps for it. */
export function BothSides({
  mirror,
  snapshots,
  destination,
}: {
  mirror: SeenMirror;
  snapshots: Snapshot[];
  destination: Schemas['MirrorDestination'] | null;
}) {
  const base = mirror.base_snapshot ?? destination?.base_snapshot;
  const kept = new Map((destination?.kept ?? []).map((each) => [each.name, each.why]));
  const both = (snapshot: Snapshot) =>
    snapshot.name === base ? 'yes, the base of the next update' : kept.has(snapshot.name) ? `kept for the mirror: ${kept.get(snapshot.name)}` : '–';
  const columns: Column<Snapshot>[] = [
    { title: 'Snapshot', width: 26, value: (snapshot) => snapshot.name, cell: (snapshot) => snapshot.name },
    { title: 'Data of', width: 18, value: (snapshot) => snapshot.created_at, cell: (snapshot) => <Ago at={snapshot.created_at} /> },
    { title: 'At both sites', width: 24, value: both, cell: both },
    { title: 'Made by', width: 18, value: (snapshot) => snapshot.made_by, cell: (snapshot) => (snapshot.made_by ? MADE_BY[snapshot.made_by] : '–') },
    { title: 'Only here', width: 14, right: true, value: (snapshot) => snapshot.unique_bytes, cell: (snapshot) => size(snapshot.unique_bytes) },
  ];
  return (
    <>
      <Facts
        facts={[
          ['Common snapshot', base ?? 'none yet'],
          ['Kept at the source since', destination?.since && <Ago key="since" at={destination.since} />],
          ['What keeping it costs', destination?.pinned_bytes !== null && destination?.pinned_bytes !== undefined ? size(destination.pinned_bytes) : null],
          ['Released', destination?.released && `${destination.released.why}`],
        ]}
      />
      <DataTable
        label={`Snapshots of ${mirror.name} at this site`}
        rows={snapshots}
        columns={columns}
        rowKey={(snapshot) => snapshot.uuid}
        sortedBy={1}
        descending
        empty="There are no snapshots here yet."
      />
    </>
  );
}
