import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useParams } from 'react-router-dom';
import type { Schemas } from '../api/client';
import { useMirrors, usePeer } from '../api/queries';
import { useMay } from '../api/session';
import { MirrorTable } from '../mirrors/MirrorTable';
import { peerOf } from '../mirrors/actions';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { count, duration, milliseconds, rate, size } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { Hours } from './Hours';
import { Allow, Deny, PeerSettings, Rekey, RemovePeer } from './PeerDialogs';
import { PeerState } from './Peers';

type PeerStatus = Schemas['PeerStatus'];
type PeerPath = Schemas['PeerPath'];

export default function PeerPage() {
  const { peer: name = '' } = useParams();
  const peer = usePeer(name);
  return (
    <PageFrame title={name} above={<Link to="/peers">Peers and paths</Link>}>
      <Loaded query={peer} lines={8}>
        {(found) => (
          <>
            <Session peer={found} />
            <Paths peer={found} />
            <Rights peer={found} />
            <MirrorsWith name={found.name} />
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

function Session({ peer }: { peer: PeerStatus }) {
  const may = useMay();
  const [asked, setAsked] = useState<'set' | 'rekey' | 'remove' | null>(null);
  const link = peer.link;
  return (
    <Panel
      title="Session"
      actions={
        may('administrator') && (
          <span className="button-row">
            <Button size="sm" variant="secondary" onClick={() => setAsked('set')}>
              Settings
            </Button>
            <Button size="sm" variant="secondary" onClick={() => setAsked('rekey')}>
              Another key
            </Button>
            <Button size="sm" variant="danger" onClick={() => setAsked('remove')}>
              Remove
            </Button>
          </span>
        )
      }
    >
      <p className="verdict">
        <PeerState peer={peer} />
      </p>
      {peer.why && <p>{peer.why}</p>}
      {(peer.notes ?? []).map((note) => (
        <p key={note}>{note}</p>
      ))}
      <Facts
        facts={[
          ['Address', peer.address ?? 'it dials this site'],
          ['RTT', milliseconds(peer.rtt_seconds)],
          ['Sent, received', `${size(peer.sent_bytes)}, ${size(peer.received_bytes)} since the daemon started`],
          ['Its clock', peer.clock_ahead_seconds !== null && peer.clock_ahead_seconds !== undefined ? `${milliseconds(Math.abs(peer.clock_ahead_seconds))} ${peer.clock_ahead_seconds < 0 ? 'behind' : 'ahead of'} this site’s` : null],
          ['Paired', peer.paired_at && <Ago key="paired" at={peer.paired_at} />],
          ['Its people may, here', peer.role ?? 'nothing'],
          ['Identity', <code key="id">{peer.id}</code>],
          ['Committed rate (CIR)', link?.rate_bytes_per_second ? rate(link.rate_bytes_per_second) : null],
          ['Paths are used', link && link.paths.length > 0 ? link.mode : null],
          ['DSCP mark', link?.dscp || null],
          ['Sign of life every', link?.keepalive_seconds ? duration(link.keepalive_seconds) : null],
          ['Sent twice, over another lane', peer.streams?.retransmitted_bytes ? size(peer.streams.retransmitted_bytes) : null],
        ]}
      />
      {peer.throttle_out && <Hours title="Limit of what is sent to it" rules={peer.throttle_out.rules} />}
      {peer.throttle_in && <Hours title="Limit of what it sends here" rules={peer.throttle_in.rules} />}
      {asked === 'set' && <PeerSettings peer={peer} onClose={() => setAsked(null)} />}
      {asked === 'rekey' && <Rekey peer={peer.name} onClose={() => setAsked(null)} />}
      {asked === 'remove' && (
        <RemovePeer peer={peer.name} onClose={() => setAsked(null)} />
      )}
    </Panel>
  );
}

/** Part of what was sent that the kernel had to send again. */
const loss = (path: PeerPath) =>
  path.retransmitted_bytes === null || path.retransmitted_bytes === undefined || path.sent_bytes === 0
    ? null
    : path.retransmitted_bytes / path.sent_bytes;

/** What a full path holds unacknowledged. */
const windowOf = (path: PeerPath) =>
  path.rtt_seconds && path.delivery_bytes_per_second ? path.rtt_seconds * path.delivery_bytes_per_second : null;

/** A handful at most, in the order of preference: they are not sorted otherwise. */
const COLUMNS: Column<PeerPath>[] = [
  {
    title: 'Path',
    width: 24,
    value: (path) => `${path.local ?? ''} ${path.remote}`,
    cell: (path) => (path.local ? `${path.local} to ${path.remote}` : path.remote),
  },
  {
    title: 'State',
    width: 13,
    cell: (path) => (
      <>
        <Status tone={path.state === 'up' ? (path.why ? 'warning' : 'proven') : 'danger'}>{path.state}</Status>
        {path.why && <div className="quiet">{path.why}</div>}
        {path.down_seconds ? <div className="quiet">for {duration(path.down_seconds)}</div> : null}
      </>
    ),
  },
  { title: 'RTT', width: 10, right: true, cell: (path) => milliseconds(path.rtt_seconds) },
  {
    title: 'Sent again',
    width: 11,
    right: true,
    cell: (path) => {
      const part = loss(path);
      return part === null ? '–' : `${(part * 100).toFixed(2)} %`;
    },
  },
  { title: 'Rate', width: 12, right: true, cell: (path) => rate(path.delivery_bytes_per_second) },
  { title: 'Window', width: 10, right: true, cell: (path) => size(windowOf(path)) },
  { title: 'Lanes', width: 8, right: true, cell: (path) => count(path.lanes) },
  {
    title: 'Packets',
    width: 12,
    cell: (path) => `${path.path_mtu_bytes ? `${path.path_mtu_bytes} B` : '–'}${path.jumbo ? ', jumbo' : ''}`,
  },
];

function Paths({ peer }: { peer: PeerStatus }) {
  return (
    <Panel title="Paths">
      <DataTable
        label={`Paths to ${peer.name}`}
        rows={peer.paths ?? []}
        columns={COLUMNS}
        rowKey={(path) => `${path.local ?? ''} ${path.remote}`}
        searchable={false}
        empty="There is no session, so there is no path."
      />
      <p className="quiet">
        Window: what is on the way unacknowledged at this rate and RTT. <Link to="/calculator">Calculate one</Link>
      </p>
    </Panel>
  );
}

function Rights({ peer }: { peer: PeerStatus }) {
  const may = useMay();
  const [asked, setAsked] = useState<{ deny?: string } | null>(null);
  const columns: Column<Schemas['VolumeRights']>[] = [
    { title: 'Volume', width: 40, value: (right) => right.volume, cell: (right) => <Link to={`/volumes/${right.volume}`}>{right.volume}</Link> },
    {
      title: 'May',
      width: 40,
      value: (right) => String(right.reverse),
      cell: (right) => `mirror it${right.reverse ? ', and the way back' : ''}${right.fence ? '; it is fenced when it is overtaken' : ''}`,
    },
    {
      title: 'Actions',
      width: 20,
      cell: (right) => (
        <Button variant="link" isInline isDanger onClick={() => setAsked({ deny: right.volume })}>
          Deny
        </Button>
      ),
    },
  ];
  return (
    <Panel
      title="What it may mirror"
      actions={
        may('administrator') && (
          <Button size="sm" variant="secondary" onClick={() => setAsked({})}>
            Allow a volume
          </Button>
        )
      }
    >
      <DataTable
        label={`Rights of ${peer.name}`}
        rows={peer.rights}
        columns={may('administrator') ? columns : columns.slice(0, -1)}
        rowKey={(right) => right.volume}
        empty="It has no right on any volume here."
      />
      {asked && (asked.deny ? <Deny peer={peer.name} volume={asked.deny} onClose={() => setAsked(null)} /> : <Allow peer={peer.name} onClose={() => setAsked(null)} />)}
    </Panel>
  );
}

function MirrorsWith({ name }: { name: string }) {
  const mirrors = useMirrors();
  return (
    <Panel title="Mirrors with it">
      <Loaded query={mirrors}>
        {(all) => <MirrorTable label={`Mirrors with ${name}`} empty="There are no mirrors with it yet." mirrors={all.filter((mirror) => peerOf(mirror) === name)} />}
      </Loaded>
    </Panel>
  );
}
