import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import type { Schemas } from '../api/client';
import { useHosts, useSite } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { count } from '../words/quantities';
import { Ago } from '../words/Time';
import { AddHost } from './HostDialogs';

type Host = Schemas['Host'];

const opens = (host: Host) => host.rights.map((right) => `${right.volume}${right.read_only ? ' to read only' : ''}`).join(', ');

const COLUMNS: Column<Host>[] = [
  { title: 'Host', width: 18, value: (host) => host.name, cell: (host) => <Link to={`/hosts/${host.name}`}>{host.name}</Link> },
  { title: 'May open', width: 34, value: opens, cell: (host) => opens(host) || 'nothing' },
  { title: 'Open now', width: 16, right: true, value: (host) => host.connections, cell: (host) => count(host.connections) },
  { title: 'Good until', width: 16, value: (host) => host.expires_at, cell: (host) => host.expires_at?.slice(0, 10) ?? 'from elsewhere' },
  { title: 'Added', width: 16, value: (host) => host.added_at, cell: (host) => <Ago at={host.added_at} /> },
];

export default function Hosts() {
  const hosts = useHosts();
  const site = useSite();
  const may = useMay();
  const [adding, setAdding] = useState(false);
  return (
    <PageFrame title="Hosts" actions={may('administrator') && <Button onClick={() => setAdding(true)}>Add a host</Button>}>
      {site.data && !site.data.nbd_address && (
        <p className="gap-below">
          Hosts on other machines are not served by this site: start the daemon with <code>--nbd-listen</code>.
        </p>
      )}
      <Panel title="Hosts that may open volumes over the network">
        <Loaded query={hosts}>
          {(all) => <DataTable label="Hosts" rows={all} columns={COLUMNS} rowKey={(host) => host.name} empty="No host is known yet." />}
        </Loaded>
      </Panel>
      {adding && <AddHost onClose={() => setAdding(false)} />}
    </PageFrame>
  );
}
