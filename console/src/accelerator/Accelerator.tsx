import { Button } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { useAccelerator } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { count, milliseconds, percent, size } from '../words/quantities';
import { sentence } from '../words/sentence';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import {
  AddForward,
  ClearCache,
  EndForward,
  EndPreposition,
  Preposition,
  ReloadPolicies,
  RemovePolicy,
  ResetConnection,
  SetPolicy,
  SwitchOff,
  SwitchOn,
} from './AcceleratorDialogs';

type AcceleratorStatus = Schemas['AcceleratorStatus'];
type Connection = Schemas['AcceleratedConnection'];
type Policy = Schemas['AcceleratorPolicy'];
type Application = Schemas['AcceleratedApplication'];
type Forward = Schemas['AcceleratorForward'];
type Sending = Schemas['Preposition'];

const saved = (original: number, wire: number) => (original > wire ? percent(original - wire, original) : '–');

type Asked =
  | { what: 'on' | 'off' | 'policy' | 'reload' | 'clear' | 'forward' | 'ahead' }
  | { what: 'change-policy'; policy: Policy }
  | { what: 'remove-policy'; application: string }
  | { what: 'reset'; connection: Connection }
  | { what: 'end-forward'; listen: string }
  | { what: 'end-ahead'; sending: Sending };

/** The button of an action, for those who may. */
type Ask = (asked: Asked) => void;

export default function Accelerator() {
  const status = useAccelerator();
  const may = useMay();
  const [asked, setAsked] = useState<Asked | null>(null);
  const isOff = status.data?.state === 'off' && !status.data.listen;
  return (
    <PageFrame
      title="Accelerator"
      actions={
        status.data &&
        may('administrator') && (
          <span className="button-row">
            {!isOff && (
              <Button variant="secondary" onClick={() => setAsked({ what: 'off' })}>
                Switch it off
              </Button>
            )}
            <Button variant={isOff ? 'primary' : 'secondary'} onClick={() => setAsked({ what: 'on' })}>
              {isOff ? 'Switch it on' : 'Settings'}
            </Button>
          </span>
        )
      }
    >
      <Loaded query={status} lines={8}>
        {(found) => (
          <>
            {isOff ? (
              <Panel title="State">
                <p>The accelerator is off at this site.</p>
                <p className="quiet">It makes other programs faster over the link: backups, file shares, databases. It needs a machine in the way between the hosts of both sites, and the same at the other site.</p>
              </Panel>
            ) : (
              <On status={found} ask={setAsked} />
            )}
            {asked && <Dialog asked={asked} status={found} onClose={() => setAsked(null)} />}
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

function Dialog({ asked, status, onClose }: { asked: Asked; status: AcceleratorStatus; onClose: () => void }) {
  switch (asked.what) {
    case 'on':
      return <SwitchOn status={status} onClose={onClose} />;
    case 'off':
      return <SwitchOff status={status} onClose={onClose} />;
    case 'policy':
      return <SetPolicy onClose={onClose} />;
    case 'change-policy':
      return <SetPolicy policy={asked.policy} onClose={onClose} />;
    case 'remove-policy':
      return <RemovePolicy application={asked.application} onClose={onClose} />;
    case 'reload':
      return <ReloadPolicies onClose={onClose} />;
    case 'clear':
      return <ClearCache bytes={status.store_bytes ?? 0} onClose={onClose} />;
    case 'reset':
      return <ResetConnection client={asked.connection.client} server={asked.connection.server} onClose={onClose} />;
    case 'forward':
      return <AddForward onClose={onClose} />;
    case 'end-forward':
      return <EndForward listen={asked.listen} onClose={onClose} />;
    case 'ahead':
      return <Preposition onClose={onClose} />;
    case 'end-ahead':
      return <EndPreposition job={asked.sending.job} what={asked.sending.what} onClose={onClose} />;
  }
}

function On({ status, ask }: { status: AcceleratorStatus; ask: Ask }) {
  const may = useMay();
  const runs = may('operator');
  const rules = may('administrator');
  const connections = useQuery({
    queryKey: ['accelerator', 'connections'],
    queryFn: () => answered(api.GET('/api/v1/accelerator/connections')),
    refetchInterval: 3_000,
  });
  const policies = useQuery({
    queryKey: ['accelerator', 'policies'],
    queryFn: () => answered(api.GET('/api/v1/accelerator/policies')),
    refetchInterval: 30_000,
  });
  const forwards = useQuery({
    queryKey: ['accelerator', 'forwards'],
    queryFn: () => answered(api.GET('/api/v1/accelerator/forwards')),
    refetchInterval: 30_000,
  });
  const ahead = useQuery({
    queryKey: ['accelerator', 'prepositions'],
    queryFn: () => answered(api.GET('/api/v1/accelerator/prepositions')),
    refetchInterval: 3_000,
  });
  const tone = status.state === 'active' ? ((status.warnings ?? []).length > 0 ? 'warning' : 'proven') : 'warning';
  return (
    <>
      <Panel
        title="State"
        actions={
          runs &&
          !!status.store_bytes && (
            <Button size="sm" variant="secondary" onClick={() => ask({ what: 'clear' })}>
              Empty the chunk store
            </Button>
          )
        }
      >
        <p className="verdict">
          <Status tone={tone}>{status.state}</Status>
        </p>
        {status.why && <p>{sentence(status.why)}</p>}
        {(status.warnings ?? []).map((warning) => (
          <p key={warning}>{sentence(warning)}</p>
        ))}
        <Facts
          facts={[
            ['Optimised connections', `${count(status.optimized_connections)} now, ${count(status.taken_connections)} in all`],
            ['Passed through', count(status.passed_through_connections)],
            ['Savings', `${size(status.original_bytes)} became ${size(status.wire_bytes)} on the link${status.original_bytes > status.wire_bytes ? `: ${saved(status.original_bytes, status.wire_bytes)} saved` : ''}`],
            ['Chunk store', status.store_bytes !== null && status.store_bytes !== undefined ? `${size(status.store_bytes)} of ${size(status.store_size_bytes)}` : null],
            ['Found in the chunk store', status.cache?.hit_ratio ? `${Math.round(status.cache.hit_ratio * 100)} % of look-ups` : null],
            ['Beginning of a connection held', status.connection_hold?.p50_seconds ? `half at most ${milliseconds(status.connection_hold.p50_seconds)}` : null],
            ['Listens at', status.listen],
            ['LAN', status.lan?.join(', ')],
            ['WAN', status.wan],
            ['Forwards of peers may end at', status.forward_to?.join(', ')],
          ]}
        />
        {status.peers.length > 0 && (
          <ul className="needs">
            {status.peers.map((peer) => (
              <li key={peer.name}>
                <Status tone={peer.state === 'connected' ? 'proven' : 'danger'}>{peer.name}</Status> {peer.state}, RTT {milliseconds(peer.rtt_seconds)}
                {peer.why && <p>{sentence(peer.why)}</p>}
              </li>
            ))}
          </ul>
        )}
      </Panel>
      <Panel title="Savings by application">
        <DataTable label="Applications" rows={status.applications ?? []} columns={APPLICATIONS} rowKey={(row) => row.application} empty="Nothing has been optimised yet." />
      </Panel>
      <Panel title="Connections">
        <Loaded query={connections}>
          {(rows) => (
            <DataTable label="Connections" rows={rows} columns={runs ? withReset(ask) : CONNECTIONS} rowKey={(row) => `${row.client} ${row.server} ${row.opened_at}`} empty="There are none now." />
          )}
        </Loaded>
      </Panel>
      <Panel
        title="Policies"
        actions={
          rules && (
            <span className="button-row">
              <Button size="sm" variant="secondary" onClick={() => ask({ what: 'policy' })}>
                Set a policy
              </Button>
              <Button size="sm" variant="secondary" onClick={() => ask({ what: 'reload' })}>
                Read farside.toml again
              </Button>
            </span>
          )
        }
      >
        <Loaded query={policies}>
          {(rows) => (
            <>
              <p className="quiet">The first that fits a connection holds for it.</p>
              <DataTable label="Policies" rows={rows.map((policy, order) => ({ ...policy, order }))} columns={rules ? withChange(ask) : POLICIES} rowKey={(row) => `${row.order}`} empty="There are none." />
            </>
          )}
        </Loaded>
      </Panel>
      <Panel
        title="Forwards"
        actions={
          rules && (
            <Button size="sm" variant="secondary" onClick={() => ask({ what: 'forward' })}>
              Forward a port
            </Button>
          )
        }
      >
        {status.forwards_error && <p>{sentence(status.forwards_error)}</p>}
        <Loaded query={forwards}>
          {(rows) => (
            <DataTable label="Forwards" rows={rows} columns={rules ? [...FORWARDS, ending<Forward>((row) => `End the forward at ${row.listen}`, (row) => ask({ what: 'end-forward', listen: row.listen }))] : FORWARDS} rowKey={(row) => row.listen} searchable={false} empty="No port here leads to a peer’s side." />
          )}
        </Loaded>
      </Panel>
      <Panel
        title="Sent ahead"
        actions={
          runs && (
            <Button size="sm" variant="secondary" onClick={() => ask({ what: 'ahead' })}>
              Send a volume ahead
            </Button>
          )
        }
      >
        <Facts facts={[['So far', status.prepositioned_original_bytes ? `${size(status.prepositioned_original_bytes)}, by ${size(status.prepositioned_wire_bytes)} on the link` : null]]} />
        <Loaded query={ahead}>
          {(rows) => (
            <DataTable label="Sent ahead" rows={rows} columns={runs ? [...AHEAD, ending<Sending>((row) => `End sending ${row.what}`, (row) => ask({ what: 'end-ahead', sending: row }))] : AHEAD} rowKey={(row) => `${row.job} ${row.what} ${row.peer}`} searchable={false} empty="Nothing is being sent ahead." />
          )}
        </Loaded>
      </Panel>
    </>
  );
}

/** The last column of a table: ends what its row is about. */
const ending = <Row,>(label: (row: Row) => string, end: (row: Row) => void): Column<Row> => ({
  title: 'Actions',
  width: 12,
  cell: (row) => (
    <Button variant="link" isInline isDanger onClick={() => end(row)} aria-label={label(row)}>
      End
    </Button>
  ),
});

const withReset = (ask: Ask): Column<Connection>[] => [
  ...CONNECTIONS,
  {
    title: 'Actions',
    width: 10,
    cell: (row) =>
      row.applied === 'pass-through' ? null : (
        <Button variant="link" isInline isDanger onClick={() => ask({ what: 'reset', connection: row })} aria-label={`Reset ${row.client} to ${row.server}`}>
          Reset
        </Button>
      ),
  },
];

const withChange = (ask: Ask): typeof POLICIES => [
  ...POLICIES,
  {
    title: 'Actions',
    width: 14,
    // Those of the file and those that are shipped are not changed here: one that is set comes before them.
    cell: (row) =>
      row.origin === 'set' && (
        <span className="button-row">
          <Button variant="link" isInline onClick={() => ask({ what: 'change-policy', policy: row })} aria-label={`Change the policy ${row.application}`}>
            Change
          </Button>
          <Button variant="link" isInline isDanger onClick={() => ask({ what: 'remove-policy', application: row.application })} aria-label={`Take back the policy ${row.application}`}>
            Take back
          </Button>
        </span>
      ),
  },
];

const original = (row: Application) => row.sent_original_bytes + row.received_original_bytes;
const wire = (row: Application) => row.sent_wire_bytes + row.received_wire_bytes;

const APPLICATIONS: Column<Application>[] = [
  { title: 'Application', width: 25, value: (row) => row.application, cell: (row) => row.application },
  { title: 'Connections', width: 20, right: true, value: (row) => row.taken_connections, cell: (row) => `${count(row.optimized_connections)} now, ${count(row.taken_connections)} in all` },
  { title: 'Bytes', width: 20, right: true, value: original, cell: (row) => size(original(row)) },
  { title: 'On the link', width: 20, right: true, value: wire, cell: (row) => size(wire(row)) },
  { title: 'Saved', width: 15, right: true, value: (row) => (original(row) > 0 ? 1 - wire(row) / original(row) : 0), cell: (row) => saved(original(row), wire(row)) },
];

const CONNECTIONS: Column<Connection>[] = [
  { title: 'Client', width: 18, value: (row) => row.client, cell: (row) => row.client },
  { title: 'Server', width: 18, value: (row) => row.server, cell: (row) => row.server },
  { title: 'Application', width: 14, value: (row) => row.application, cell: (row) => row.application },
  {
    title: 'What is done',
    width: 18,
    value: (row) => row.applied,
    cell: (row) => (
      <>
        {row.applied}
        {row.reason && <div className="quiet">less than agreed: {row.reason}</div>}
      </>
    ),
  },
  { title: 'Bytes', width: 11, right: true, value: (row) => row.original_bytes, cell: (row) => size(row.original_bytes) },
  { title: 'Saved', width: 9, right: true, value: (row) => row.wire_bytes, cell: (row) => saved(row.original_bytes, row.wire_bytes) },
  { title: 'Opened', width: 12, value: (row) => row.opened_at, cell: (row) => <Ago at={row.opened_at} /> },
];

const POLICIES: Column<Policy & { order: number }>[] = [
  { title: 'Order', width: 8, value: (row) => row.order, cell: (row) => row.order + 1 },
  { title: 'Application', width: 20, value: (row) => row.application, cell: (row) => row.application },
  { title: 'What is done', width: 17, value: (row) => row.action, cell: (row) => row.action },
  { title: 'Ports', width: 20, value: (row) => row.ports.join(', '), cell: (row) => row.ports.join(', ') || 'all' },
  {
    title: 'Addresses',
    width: 22,
    cell: (row) => [...row.clients.map((net) => `client ${net}`), ...row.servers.map((net) => `server ${net}`), ...row.addresses].join(', ') || 'all',
  },
  { title: 'Origin', width: 13, value: (row) => row.origin, cell: (row) => row.origin },
];

const FORWARDS: Column<Forward>[] = [
  { title: 'Listens here at', width: 30, value: (row) => row.listen, cell: (row) => row.listen },
  { title: 'Peer', width: 25, value: (row) => row.peer, cell: (row) => row.peer },
  { title: 'Leads to', width: 33, value: (row) => row.destination, cell: (row) => row.destination },
];

const AHEAD: Column<Sending>[] = [
  { title: 'What', width: 30, value: (row) => row.what, cell: (row) => row.what },
  { title: 'To', width: 18, value: (row) => row.peer, cell: (row) => row.peer },
  { title: 'Sent', width: 25, value: (row) => row.original_bytes, cell: (row) => `${size(row.original_bytes)} of ${size(row.size_bytes)}, ${size(row.wire_bytes)} on the link` },
  { title: 'Began', width: 15, value: (row) => row.started_at, cell: (row) => <Ago at={row.started_at} /> },
];
