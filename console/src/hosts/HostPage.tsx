import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useParams } from 'react-router-dom';
import type { Schemas } from '../api/client';
import { useHost } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { count } from '../words/quantities';
import { Ago } from '../words/Time';
import { AllowHost, DenyHost, RemoveHost } from './HostDialogs';

type HostStatus = Schemas['HostStatus'];

export default function HostPage() {
  const { host: name = '' } = useParams();
  const host = useHost(name);
  return (
    <PageFrame title={name} above={<Link to="/hosts">Hosts</Link>}>
      <Loaded query={host} lines={8}>
        {(found) => (
          <>
            <Identity host={found} />
            <Rights host={found} />
            <Panel title="What it has open">
              {found.opened.length === 0 ? (
                <p className="quiet">Nothing now.</p>
              ) : (
                <ul className="bullets">
                  {found.opened.map((open, at) => (
                    <li key={at}>
                      {open.export}
                      {open.read_only ? ', to read only' : ', to write'}
                    </li>
                  ))}
                </ul>
              )}
            </Panel>
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

function Identity({ host }: { host: HostStatus }) {
  const may = useMay();
  const [removing, setRemoving] = useState(false);
  return (
    <Panel
      title="The host"
      actions={
        may('administrator') && (
          <Button size="sm" variant="danger" onClick={() => setRemoving(true)}>
            Remove
          </Button>
        )
      }
    >
      <Facts
        facts={[
          ['Added', <Ago key="added" at={host.added_at} />],
          ['Connections now', count(host.connections)],
          ['Certificate ends', host.expires_at?.slice(0, 10) ?? 'it comes from elsewhere'],
          ['Certificate', host.fingerprint && <code key="fingerprint">{host.fingerprint}</code>],
        ]}
      />
      {removing && <RemoveHost host={host.name} onClose={() => setRemoving(false)} />}
    </Panel>
  );
}

function Rights({ host }: { host: HostStatus }) {
  const may = useMay();
  const [asked, setAsked] = useState<{ deny?: string } | null>(null);
  const columns: Column<Schemas['HostRight']>[] = [
    { title: 'Volume', width: 45, value: (right) => right.volume, cell: (right) => <Link to={`/volumes/${right.volume}`}>{right.volume}</Link> },
    { title: 'May', width: 35, value: (right) => String(right.read_only), cell: (right) => (right.read_only ? 'read' : 'read and write') },
    {
      title: 'Actions',
      width: 20,
      cell: (right) => (
        <Button variant="link" isInline isDanger onClick={() => setAsked({ deny: right.volume })} aria-label={`Deny ${right.volume}`}>
          Deny
        </Button>
      ),
    },
  ];
  return (
    <Panel
      title="What it may open"
      actions={
        may('administrator') && (
          <Button size="sm" variant="secondary" onClick={() => setAsked({})}>
            Allow a volume
          </Button>
        )
      }
    >
      <DataTable
        label={`Rights of ${host.name}`}
        rows={host.rights}
        columns={may('administrator') ? columns : columns.slice(0, -1)}
        rowKey={(right) => right.volume}
        empty="It may open no volume here."
      />
      {asked &&
        (asked.deny ? (
          <DenyHost host={host.name} volume={asked.deny} onClose={() => setAsked(null)} />
        ) : (
          <AllowHost host={host.name} onClose={() => setAsked(null)} />
        ))}
    </Panel>
  );
}
