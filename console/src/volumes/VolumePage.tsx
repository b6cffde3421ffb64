import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useParams } from 'react-router-dom';
import { answered, api, confirming, parts, planned, type Schemas, type Snapshot, type Volume } from '../api/client';
import { useDestinations, useMirrors, useSite, useSnapshots, useVolume } from '../api/queries';
import { useMay } from '../api/session';
import { AllowHost } from '../hosts/HostDialogs';
import { VerdictLabel } from '../mirrors/VerdictLabel';
import { ActionDialog } from '../plan/ActionDialog';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { CopyLine } from '../words/CopyLine';
import { Facts } from '../words/Facts';
import { size } from '../words/quantities';
import { sentence } from '../words/sentence';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { Sharing } from './Sharing';
import { Timetable } from './Timetable';
import { VolumeDialog, type VolumeActionName } from './VolumeDialogs';
import { here, network } from './connect';
import { writing } from './Volumes';

export default function VolumePage() {
  const params = useParams();
  const name = `${params.pool}/${params.volume}`;
  const volume = useVolume(name);
  return (
    <PageFrame title={name} above={<Link to="/volumes">Volumes</Link>}>
      <Loaded query={volume} lines={8}>
        {(found) => <Found volume={found} />}
      </Loaded>
    </PageFrame>
  );
}

function Found({ volume }: { volume: Volume }) {
  const may = useMay();
  const [asked, setAsked] = useState<{ name: VolumeActionName; snapshot?: Snapshot } | null>(null);
  const actions: [VolumeActionName, string, Schemas['AccessRole']][] = [
    ['snapshot', 'Take a snapshot', 'operator'],
    ['limits', 'Limits', 'operator'],
    ['resize', 'Resize', 'administrator'],
    ['rename', 'Rename', 'operator'],
    ['delete', 'Delete', 'administrator'],
  ];
  return (
    <>
      <Panel
        title="The volume"
        actions={
          <span className="button-row">
            {actions
              .filter(([, , role]) => may(role))
              .map(([name, label]) => (
                <Button key={name} size="sm" variant={name === 'delete' ? 'danger' : 'secondary'} onClick={() => setAsked({ name })}>
                  {label}
                </Button>
              ))}
          </span>
        }
      >
        <p>
          <Status tone={volume.quarantined?.length ? 'danger' : volume.warning ? 'warning' : 'neutral'}>{writing(volume)}</Status>
        </p>
        {volume.why && <p>{sentence(volume.why)}</p>}
        {volume.warning && <p>{sentence(volume.warning)}</p>}
        <Facts
          facts={[
            ['Size', size(volume.size_bytes)],
            ['Data now', size(volume.referenced_bytes)],
            ['Occupied with its snapshots', size(volume.occupied_bytes)],
            ['Quota', volume.quota_bytes ? size(volume.quota_bytes) : null],
            ['Reservation', volume.reserve_bytes ? size(volume.reserve_bytes) : null],
            ['Grows by itself', volume.autogrow ? `up to ${size(volume.autogrow.to_bytes)}, by ${volume.autogrow.step_bytes ? size(volume.autogrow.step_bytes) : 'a tenth'} at once` : null],
            ['Began as', volume.origin],
            ['Side branches', volume.side_branches || null],
            ['Damaged ranges', volume.quarantined?.length ? `${volume.quarantined.length}: reads of them fail until they are written whole` : null],
            ['Pool', <Link key="pool" to={`/pools/${volume.name.split('/')[0]}`}>{volume.name.split('/')[0]}</Link>],
          ]}
        />
        <MirrorsOf name={volume.name} />
        <KeptFor name={volume.name} />
      </Panel>
      <div className="two-columns">
        <Connect volume={volume} />
        <div>
          <WhoMayOpen volume={volume} />
          <Timetable volume={volume} />
          <Sharing volume={volume} />
        </div>
      </div>
      <Snapshots volume={volume} ask={(name, snapshot) => setAsked({ name, snapshot })} />
      {asked && <VolumeDialog name={asked.name} volume={volume} snapshot={asked.snapshot} onClose={() => setAsked(null)} />}
    </>
  );
}

function MirrorsOf({ name }: { name: string }) {
  const mirrors = useMirrors();
  const here = mirrors.data?.filter((mirror) => mirror.name === name) ?? [];
  if (here.length === 0) return null;
  return (
    <>
      <h3>Mirrors</h3>
      <ul className="needs">
        {here.map((mirror) => (
          <li key={mirror.id + mirror.role}>
            <VerdictLabel mirror={mirror} />{' '}
            <Link to={`/mirrors/${name}`}>{mirror.role === 'destination' ? `replica of ${mirror.source}` : `mirrored to ${mirror.destination}`}</Link>
          </li>
        ))}
      </ul>
    </>
  );
}

/** What is kept for mirrors that nobody knows any more, or that are over: only a release lets it go. */
function KeptFor({ name }: { name: string }) {
  const destinations = useDestinations();
  const may = useMay();
  const [releasing, setReleasing] = useState<string | null>(null);
  const orphans = (destinations.data ?? []).filter((each) => each.volume === name && (each.known === false || each.stale));
  if (orphans.length === 0 && !releasing) return null;
  const path = { ...parts(name), peer: releasing ?? '' };
  return (
    <>
      <h3>Kept for mirrors that are over</h3>
      <ul className="needs">
        {orphans.map((each) => (
          <li key={each.id}>
            {each.known === false ? 'A mirror that this site does not know' : `A mirror to ${each.peer}:${each.destination} that a newer one has taken the place of`}
            {each.pinned_bytes ? ` keeps ${size(each.pinned_bytes)}.` : '.'}{' '}
            {may('administrator') && (
              <Button variant="link" isInline isDanger onClick={() => setReleasing(each.id)} aria-label={`Release ${each.id}`}>
                Release
              </Button>
            )}
          </li>
        ))}
      </ul>
      {releasing && (
        <ActionDialog
          onClose={() => setReleasing(null)}
          action={{
            title: `Release what ${name} keeps for a mirror that is over`,
            verb: 'Release',
            typed: name,
            plan: () => planned(api.POST('/api/v1/mirrors/{pool}/{volume}/release/{peer}', { params: { path, query: { plan: true } } })),
            run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/release/{peer}', { params: { path, header: confirming(`${name} ${releasing}`) } })),
          }}
        />
      )}
    </>
  );
}

function Connect({ volume }: { volume: Volume }) {
  const site = useSite();
  return (
    <Panel title="How to connect">
      <Loaded query={site}>
        {(found) => (
          <>
            <h3>At the site’s own machine</h3>
            {here(found, volume.name).map((line) => (
              <CopyLine key={line.label} {...line} />
            ))}
            {found.nbd_address ? (
              <>
                <h3>From another machine, with the host’s files</h3>
                {network(found.nbd_address, volume.name).map((line) => (
                  <CopyLine key={line.label} {...line} />
                ))}
              </>
            ) : (
              <p className="quiet">Hosts on other machines are not served here: start the daemon with --nbd-listen.</p>
            )}
          </>
        )}
      </Loaded>
    </Panel>
  );
}

function WhoMayOpen({ volume }: { volume: Volume }) {
  const hosts = volume.hosts ?? [];
  const peers = volume.rights_of ?? [];
  const may = useMay();
  const [allowing, setAllowing] = useState(false);
  return (
    <Panel
      title="Who may open it"
      actions={
        may('administrator') && (
          <Button size="sm" variant="secondary" onClick={() => setAllowing(true)}>
            Allow a host
          </Button>
        )
      }
    >
      <ul className="bullets">
        <li>Whoever may open the NBD socket at the site’s own machine.</li>
        {hosts.map((host) => (
          <li key={host.host}>
            Host <Link to={`/hosts/${host.host}`}>{host.host}</Link>
            {host.read_only && ', to read only'}
          </li>
        ))}
        {hosts.length === 0 && <li>No host over the network.</li>}
        {peers.map((peer) => (
          <li key={peer}>
            Peer <Link to={`/peers/${peer}`}>{peer}</Link> may mirror it.
          </li>
        ))}
        {peers.length === 0 && <li>No peer may mirror it.</li>}
      </ul>
      <p className="quiet">
        Open now: {volume.writers ?? 0} connections that may write, {volume.readers ?? 0} that only read.
      </p>
      {allowing && <AllowHost volume={volume.name} onClose={() => setAllowing(false)} />}
    </Panel>
  );
}

function Snapshots({ volume, ask }: { volume: Volume; ask: (name: VolumeActionName, snapshot: Snapshot) => void }) {
  const snapshots = useSnapshots(volume.name);
  const may = useMay();
  const columns: Column<Snapshot>[] = [
    {
      title: 'Snapshot',
      width: 24,
      value: (snapshot) => snapshot.name,
      cell: (snapshot) => (
        <>
          {snapshot.name}
          <div className="quiet">
            {[snapshot.held && 'held', snapshot.rotates && 'rotates', snapshot.on_main_line === false && 'side branch'].filter(Boolean).join(', ')}
          </div>
        </>
      ),
    },
    { title: 'Data of', width: 16, value: (snapshot) => snapshot.created_at, cell: (snapshot) => <Ago at={snapshot.created_at} /> },
    { title: 'Made by', width: 12, value: (snapshot) => snapshot.made_by, cell: (snapshot) => snapshot.made_by ?? '–' },
    { title: 'Data', width: 12, right: true, value: (snapshot) => snapshot.referenced_bytes, cell: (snapshot) => size(snapshot.referenced_bytes) },
    { title: 'Only here', width: 12, right: true, value: (snapshot) => snapshot.unique_bytes, cell: (snapshot) => size(snapshot.unique_bytes) },
    {
      title: 'Actions',
      width: 24,
      cell: (snapshot) => (
        <span className="button-row">
          {may('operator') && (
            <>
              <Button variant="link" isInline onClick={() => ask('clone', snapshot)} aria-label={`Clone ${snapshot.name}`}>
                Clone
              </Button>
              <Button variant="link" isInline onClick={() => ask('rename-snapshot', snapshot)} aria-label={`Rename ${snapshot.name}`}>
                Rename
              </Button>
            </>
          )}
          {may('administrator') && (
            <>
              <Button variant="link" isInline onClick={() => ask('hold', snapshot)} aria-label={`${snapshot.held ? 'Let go of' : 'Hold'} ${snapshot.name}`}>
                {snapshot.held ? 'Let go' : 'Hold'}
              </Button>
              <Button variant="link" isInline onClick={() => ask('rollback', snapshot)} aria-label={`Roll back ${snapshot.name}`}>
                Roll back
              </Button>
              <Button variant="link" isInline isDanger onClick={() => ask('delete-snapshot', snapshot)} aria-label={`Delete ${snapshot.name}`}>
                Delete
              </Button>
            </>
          )}
        </span>
      ),
    },
  ];
  return (
    <Panel title="Snapshots">
      <Loaded query={snapshots}>
        {(list) => (
          <DataTable
            label={`Snapshots of ${volume.name}`}
            rows={list}
            columns={may('operator') ? columns : columns.slice(0, -1)}
            rowKey={(snapshot) => snapshot.uuid}
            sortedBy={1}
            descending
            empty="There are no snapshots yet."
          />
        )}
      </Loaded>
    </Panel>
  );
}
