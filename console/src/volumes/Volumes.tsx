import { Link } from 'react-router-dom';
import type { Volume } from '../api/client';
import { useVolumes } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { count, size } from '../words/quantities';
import { Status } from '../words/Status';

export function writing(volume: Volume): string {
  if (volume.replica) return 'replica, read-only';
  return volume.writable ? 'hosts may write' : 'read-only';
}

const COLUMNS: Column<Volume>[] = [
  { title: 'Volume', width: 26, value: (volume) => volume.name, cell: (volume) => <Link to={`/volumes/${volume.name}`}>{volume.name}</Link> },
  {
    title: 'Use',
    width: 20,
    value: writing,
    cell: (volume) => (
      <>
        {writing(volume)}
        {volume.warning && (
          <div>
            <Status tone="warning" title={volume.warning}>
              room
            </Status>
          </div>
        )}
      </>
    ),
  },
  { title: 'Size', width: 13, right: true, value: (volume) => volume.size_bytes, cell: (volume) => size(volume.size_bytes) },
  { title: 'Occupied', width: 14, right: true, value: (volume) => volume.occupied_bytes, cell: (volume) => size(volume.occupied_bytes) },
  { title: 'Snapshots', width: 12, right: true, value: (volume) => volume.snapshots, cell: (volume) => count(volume.snapshots) },
  {
    title: 'Open now',
    width: 15,
    right: true,
    value: (volume) => (volume.writers ?? 0) + (volume.readers ?? 0),
    cell: (volume) => `${volume.writers ?? 0} write, ${volume.readers ?? 0} read`,
  },
];

export default function Volumes() {
  const volumes = useVolumes();
  const may = useMay();
  return (
    <PageFrame
      title="Volumes"
      actions={
        may('operator') && (
          <Link className="button-link" to="/create/volume">
            Make a volume
          </Link>
        )
      }
    >
      <Panel title="Volumes of this site">
        <Loaded query={volumes} lines={8}>
          {(all) => (
            <DataTable label="Volumes" rows={all} columns={COLUMNS} rowKey={(volume) => volume.uuid} empty="There are no volumes yet." />
          )}
        </Loaded>
      </Panel>
    </PageFrame>
  );
}
