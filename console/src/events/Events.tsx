import { Link } from 'react-router-dom';
import type { Operation } from '../api/client';
import { useLog, useOperations } from '../api/queries';
import { Log } from '../mirrors/Log';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { KINDS } from '../words/kinds';
import { size } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { Support } from './Support';

const kindOf = ({ kind }: Operation) => (kind === 'swap' ? 'swap of roles' : KINDS[kind]);

function how(operation: Operation): string {
  if (operation.error) return `${operation.error.message}${operation.error.hint ? ` ${operation.error.hint}` : ''}`;
  if (operation.session_lost_seconds) return 'waits for the session with the peer';
  const transfer = operation.transfer;
  if (transfer) return `${operation.phase ?? transfer.phase}: ${size(transfer.done_bytes)} of ${size(transfer.changed_bytes)}`;
  return operation.phase ?? '';
}

const COLUMNS: Column<Operation>[] = [
  { title: 'Asked for', width: 15, value: (operation) => operation.started_at, cell: (operation) => <Ago at={operation.started_at} /> },
  { title: 'What', width: 13, value: kindOf, cell: kindOf },
  { title: 'Volume', width: 22, value: (operation) => operation.volume, cell: (operation) => <Link to={`/mirrors/${operation.volume}`}>{operation.volume}</Link> },
  {
    title: 'State',
    width: 14,
    value: (operation) => operation.state,
    cell: (operation) => (
      <Status tone={operation.state === 'done' ? 'proven' : operation.state === 'failed' ? 'danger' : 'busy'}>{operation.state}</Status>
    ),
  },
  { title: 'More', width: 36, value: how, cell: how },
];

export default function Events() {
  const operations = useOperations();
  const log = useLog();
  return (
    <PageFrame title="Events">
      <Panel title="Long work that somebody asked for">
        <Loaded query={operations}>
          {(all) => (
            <DataTable label="Operations" rows={all} columns={COLUMNS} rowKey={(operation) => operation.id} descending empty="Nobody has asked for any since the daemon started." />
          )}
        </Loaded>
      </Panel>
      <Panel title="What happened to mirrors">
        <Loaded query={log} lines={8}>
          {(lines) => <Log lines={lines} ofAll />}
        </Loaded>
      </Panel>
      <Support />
    </PageFrame>
  );
}
