import { Link } from 'react-router-dom';
import { useNow } from '../words/Time';
import type { SeenMirror } from '../api/queries';
import { useMay } from '../api/session';
import { DataTable, type Column } from '../table/DataTable';
import { doing, judge, lagOf, pathOf, urgency } from './verdict';
import { Lag, VerdictLabel } from './VerdictLabel';

// What the rows are sorted by is looked at when the list changes, not at every tick: rows would jump under the pointer.
const now = () => Date.now();

export const mirrorKey = (mirror: SeenMirror) => `${mirror.name} ${mirror.id} ${mirror.role}`;

const COLUMNS: Column<SeenMirror>[] = [
  {
    title: 'Status',
    width: 20,
    value: (mirror) => {
      const { verdict, word } = judge(mirror, now(), false);
      return `${String(urgency(verdict)).padStart(2, '0')} ${word} ${mirror.name}`;
    },
    cell: (mirror) => <VerdictLabel mirror={mirror} />,
  },
  { title: 'Volume', width: 19, value: (mirror) => mirror.name, cell: (mirror) => <Link to={pathOf(mirror)}>{mirror.name}</Link> },
  {
    title: 'With',
    width: 20,
    value: (mirror) => (mirror.role === 'destination' ? mirror.source : mirror.destination),
    cell: (mirror) => (mirror.role === 'destination' ? `from ${mirror.source}` : `to ${mirror.destination}`),
  },
  { title: 'Lag', width: 24, value: (mirror) => lagOf(mirror, now()), cell: (mirror) => <Lag mirror={mirror} /> },
  { title: 'Doing', width: 17, value: doing, cell: (mirror) => <span className="one-line" title={doing(mirror)}>{doing(mirror)}</span> },
];

export function MirrorTable({ mirrors, label, empty }: { mirrors: SeenMirror[]; label: string; empty?: string }) {
  const may = useMay();
  return (
    <DataTable
      label={label}
      rows={mirrors}
      columns={COLUMNS}
      rowKey={mirrorKey}
      empty={
        empty ?? (
          <>
            There are no mirrors at this site yet.{' '}
            {may('administrator') && (
              <>
                <Link to="/create">Protect a volume</Link> leads to the first one, in a few minutes at each site.
              </>
            )}
          </>
        )
      }
    />
  );
}

/** Mirrors counted by how they are, judged again every second. */
export function useCounts(mirrors: SeenMirror[] | undefined, lost: boolean) {
  const time = useNow();
  const counts = { proven: 0, busy: 0, neutral: 0, warning: 0, danger: 0 };
  for (const mirror of mirrors ?? []) counts[judge(mirror, time, lost).tone] += 1;
  return counts;
}
