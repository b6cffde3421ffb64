import { Button } from '@patternfly/react-core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { TextField } from '../forms/fields';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { duration } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';

type Entry = Schemas['AuditEntry'];

const asked = (entry: Entry) => `${entry.method} ${entry.path.replace('/api/v1', '')}`;
const sent = (entry: Entry) => (entry.request === null || entry.request === undefined ? '' : JSON.stringify(entry.request, (_key, value: unknown) => (value === null ? undefined : value)));

const COLUMNS: Column<Entry>[] = [
  { title: 'When', width: 13, value: (entry) => entry.id, cell: (entry) => <Ago at={entry.at} /> },
  {
    title: 'Who',
    width: 19,
    value: (entry) => entry.who,
    cell: (entry) => (
      <>
        {entry.who}
        <div className="quiet">
          {entry.role}, from {entry.from}
        </div>
      </>
    ),
  },
  {
    title: 'What',
    width: 43,
    value: (entry) => `${asked(entry)} ${sent(entry)}`,
    cell: (entry) => (
      <>
        <code>{asked(entry)}</code>
        <div className="quiet">{sent(entry)}</div>
      </>
    ),
  },
  {
    title: 'What came of it',
    width: 25,
    value: (entry) => entry.outcome,
    cell: (entry) => (
      <>
        <Status tone={entry.outcome === 'done' ? 'proven' : entry.outcome ? 'danger' : 'neutral'}>{entry.outcome ?? 'not over'}</Status>{' '}
        {entry.duration_seconds !== null && entry.duration_seconds !== undefined && <span className="quiet">in {duration(entry.duration_seconds)}</span>}
        {entry.message && <div className="quiet">{entry.message}</div>}
      </>
    ),
  },
];

export default function Audit() {
  const [who, setWho] = useState('');
  const pages = useInfiniteQuery({
    queryKey: ['audit', who],
    queryFn: ({ pageParam }) =>
      answered(api.GET('/api/v1/audit', { params: { query: { limit: 200, ...(who && { who }), ...(pageParam !== null && { before: pageParam }) } } })),
    initialPageParam: null as number | null,
    getNextPageParam: (last) => last.next ?? null,
  });
  return (
    <PageFrame title="Audit">
      <Panel title="Who changed what">
        <div className="narrow gap-below">
          <TextField label="Only by" value={who} onChange={setWho} placeholder="account ann" help="As it stands in the list; empty: by anybody" />
        </div>
        <Loaded query={pages} lines={8}>
          {(found) => (
            <DataTable
              label="Audit log"
              rows={found.pages.flatMap((page) => page.entries)}
              columns={COLUMNS}
              rowKey={(entry) => String(entry.id)}
              descending
              empty="Nothing is written down."
              tools={
                pages.hasNextPage && (
                  <Button variant="secondary" size="sm" isLoading={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
                    Read older ones, too
                  </Button>
                )
              }
            />
          )}
        </Loaded>
      </Panel>
    </PageFrame>
  );
}
