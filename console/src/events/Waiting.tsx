import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { useDelayed } from '../api/queries';
import { useMay } from '../api/session';
import { ActionDialog } from '../plan/ActionDialog';
import { Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';

type Delayed = Schemas['Delayed'];

/** Destructive requests that wait, so that somebody may stop them. Not there where none does. */
export function Waiting() {
  const waiting = useDelayed();
  const may = useMay();
  const [stopping, setStopping] = useState<Delayed | null>(null);
  if (!waiting.data?.length && !stopping) return null;
  const columns: Column<Delayed>[] = [
    { title: 'Runs at', width: 22, value: (one) => one.runs_at, cell: (one) => `${one.runs_at.slice(0, 19).replace('T', ' ')} UTC` },
    { title: 'About', width: 20, value: (one) => one.thing, cell: (one) => one.thing },
    { title: 'What', width: 28, value: (one) => one.path, cell: (one) => <code>{`${one.method} ${one.path}`}</code> },
    { title: 'Who, from where', width: 18, value: (one) => one.who, cell: (one) => `${one.who}, ${one.from}` },
    {
      title: 'Stop',
      width: 12,
      cell: (one) =>
        may('administrator') && (
          <Button size="sm" variant="danger" onClick={() => setStopping(one)} aria-label={`Stop ${one.method} ${one.thing}`}>
            Stop
          </Button>
        ),
    },
  ];
  return (
    <Panel title="Asked for, and not done yet">
      <DataTable label="Destructive requests that wait" rows={waiting.data ?? []} columns={columns} rowKey={(one) => one.id} empty="Nothing waits." searchable={false} />
      {stopping && (
        <ActionDialog
          onClose={() => setStopping(null)}
          action={{
            title: `Stop ${stopping.method} ${stopping.path}`,
            verb: 'Stop it',
            plan: () => Promise.resolve({ would: ['It is not carried out. Nothing of it has been done.', `${stopping.who} can ask for it again: revoke the token, or set a new password, if nobody meant it.`] }),
            run: () => answered(api.DELETE('/api/v1/delayed/{id}', { params: { path: { id: stopping.id } } })),
          }}
        />
      )}
    </Panel>
  );
}
