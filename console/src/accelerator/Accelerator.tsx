import { useQuery } from '@tanstack/react-query';
import { answered, api, type Schemas } from '../api/client';
import { useAccelerator } from '../api/queries';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { count, milliseconds, percent, size } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';

type AcceleratorStatus = Schemas['AcceleratorStatus'];
type Connection = Schemas['AcceleratedConnection'];
type Policy = Schemas['AcceleratorPolicy'];
type Application = Schemas['AcceleratedApplication'];

const saved = (original: number, wire: number) => (original > wire ? percent(original - wire, original) : '–');

export default function Accelerator() {
  const status = useAccelerator();
  return (
    <PageFrame title="Accelerator">
      <Loaded query={status} lines={8}>
        {(found) =>
          found.state === 'off' && !found.listen ? (
            <p>
              The accelerator is off at this site. It is switched on at the site itself: <code>farside accel up --help</code>
            </p>
          ) : (
            <On status={found} />
          )
        }
      </Loaded>
    </PageFrame>
  );
}

function On({ status }: { status: AcceleratorStatus }) {
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
  const tone = status.state === 'active' ? ((status.warnings ?? []).length > 0 ? 'warning' : 'proven') : 'warning';
  return (
    <>
      <Panel title="State">
        <p className="verdict">
          <Status tone={tone}>{status.state}</Status>
        </p>
        {status.why && <p>{status.why}</p>}
        {(status.warnings ?? []).map((warning) => (
          <p key={warning}>{warning}</p>
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
          ]}
        />
        {status.peers.length > 0 && (
          <ul className="needs">
            {status.peers.map((peer) => (
              <li key={peer.name}>
                <Status tone={peer.state === 'connected' ? 'proven' : 'danger'}>{peer.name}</Status> {peer.state}, RTT {milliseconds(peer.rtt_seconds)}
                {peer.why && <p>{peer.why}</p>}
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
            <DataTable label="Connections" rows={rows} columns={CONNECTIONS} rowKey={(row) => `${row.client} ${row.server} ${row.opened_at}`} empty="There are none now." />
          )}
        </Loaded>
      </Panel>
      <Panel title="Policies">
        <Loaded query={policies}>
          {(rows) => (
            <>
              <p className="quiet">The first that fits a connection holds for it.</p>
              <DataTable label="Policies" rows={rows.map((policy, order) => ({ ...policy, order }))} columns={POLICIES} rowKey={(row) => `${row.order}`} empty="There are none." />
            </>
          )}
        </Loaded>
      </Panel>
    </>
  );
}

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
