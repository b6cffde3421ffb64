import { Button, SearchInput } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { memo, useDeferredValue, useMemo, useRef, useState } from 'react';

export interface Column<Row> {
  title: string;
  cell: (row: Row) => React.ReactNode;
  /** By what it is sorted and found; without, it is not. */
  value?: (row: Row) => string | number | null | undefined;
  /** Of the table's width, percent: columns stay where they are, whatever is in them. */
  width: number;
  right?: boolean;
}

// A row of a phone is as high as many.
const PAGE = window.matchMedia('(min-width: 48rem)').matches ? 50 : 10;

type Value = string | number | null | undefined;
const WORDS = new Intl.Collator('en', { numeric: true });
/** Rows that change do not change places under somebody's eyes more often than that, milliseconds. */
const STAYS = 10_000;

/** What has no value comes last. */
function compare(a: Value, b: Value): number {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return WORDS.compare(String(a), String(b));
}

/** The order of rows by a column, as their keys. */
function ordered<Row>(rows: Row[], rowKey: (row: Row) => string, value: ((row: Row) => Value) | undefined, down: boolean): string[] {
  if (!value) return rows.map(rowKey);
  const known = rows.map((row) => ({ key: rowKey(row), value: value(row) }));
  known.sort((a, b) => compare(a.value, b.value) * (down ? -1 : 1));
  return known.map(({ key }) => key);
}

/** The same, which stays for a while where only what is in the rows has changed. */
function useOrder<Row>(rows: Row[], rowKey: (row: Row) => string, value: ((row: Row) => Value) | undefined, down: boolean): string[] {
  const last = useRef<{ keys: Set<string>; order: string[]; value: unknown; down: boolean; at: number } | null>(null);
  return useMemo(() => {
    const was = last.current;
    const isSame =
      was !== null &&
      was.value === value &&
      was.down === down &&
      was.keys.size === rows.length &&
      rows.every((row) => was.keys.has(rowKey(row)));
    if (isSame && Date.now() - was.at < STAYS) return was.order;
    const order = ordered(rows, rowKey, value, down);
    last.current = { keys: new Set(order), order, value, down, at: Date.now() };
    return order;
    // rowKey says the same of a row whenever it is asked.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [rows, value, down]);
}

/** Rows that can be sorted and found, a page of them at a time. */
export function DataTable<Row>({
  label,
  rows: given,
  columns,
  rowKey,
  sortedBy = 0,
  descending = false,
  empty,
  tools,
  searchable = true,
}: {
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  sortedBy?: number;
  descending?: boolean;
  empty: React.ReactNode;
  tools?: React.ReactNode;
  searchable?: boolean;
}) {
  // Drawn bit by bit: whoever types or scrolls goes first.
  const rows = useDeferredValue(given);
  const [sort, setSort] = useState({ column: sortedBy, down: descending });
  const [search, setSearch] = useState('');
  const [page, setPage] = useState(0);
  const wanted = useDeferredValue(search.trim().toLowerCase());

  const order = useOrder(rows, rowKey, columns[sort.column]?.value, sort.down);
  const byKey = useMemo(() => {
    const searched = columns.flatMap((column) => (column.value ? [column.value] : []));
    const fits = (row: Row) => !wanted || searched.some((of) => String(of(row) ?? '').toLowerCase().includes(wanted));
    return new Map(rows.filter(fits).map((row) => [rowKey(row), row]));
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [rows, columns, wanted]);
  const found = order.filter((key) => byKey.has(key));

  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const at = Math.min(page, pages - 1);
  const shown = found.slice(at * PAGE, (at + 1) * PAGE);
  const isLong = rows.length > 8;

  return (
    <div className="data-table">
      {(tools || (searchable && isLong)) && (
        <div className="table-tools">
          {searchable && isLong && (
            <SearchInput
              aria-label={`Find in ${label}`}
              placeholder="Find"
              value={search}
              onChange={(_, value) => {
                setSearch(value);
                setPage(0);
              }}
              onClear={() => setSearch('')}
            />
          )}
          {tools}
        </div>
      )}
      {found.length === 0 ? (
        <div className="table-empty">{rows.length > 0 ? 'Nothing is found by these words.' : empty}</div>
      ) : (
        <Table aria-label={label} variant="compact" gridBreakPoint="grid-md" className="fixed-table">
          <Thead>
            <Tr>
              {columns.map((column, index) => (
                <Th
                  key={column.title}
                  style={{ width: `${column.width}%` }}
                  className={column.right ? 'to-right' : undefined}
                  {...(column.value && {
                    sort: {
                      sortBy: { index: sort.column, direction: sort.down ? 'desc' : 'asc' },
                      onSort: (_event: unknown, _index: number, direction: string) =>
                        setSort({ column: index, down: direction === 'desc' }),
                      columnIndex: index,
                    },
                  })}
                >
                  {column.title}
                </Th>
              ))}
            </Tr>
          </Thead>
          <Tbody>
            {shown.map((key) => (
              <OneRow key={key} row={byKey.get(key)!} columns={columns as Column<unknown>[]} />
            ))}
          </Tbody>
        </Table>
      )}
      {found.length > PAGE && (
        <nav className="table-pages" aria-label={`Pages of ${label}`}>
          <Button variant="secondary" size="sm" isDisabled={at === 0} onClick={() => setPage(at - 1)}>
            Before
          </Button>
          <span className="number">
            {at * PAGE + 1}–{Math.min(found.length, (at + 1) * PAGE)} of {found.length.toLocaleString('en')}
          </span>
          <Button variant="secondary" size="sm" isDisabled={at === pages - 1} onClick={() => setPage(at + 1)}>
            Next
          </Button>
        </nav>
      )}
    </div>
  );
}

/** Drawn again only if its thing has changed. */
const OneRow = memo(function OneRow({ row, columns }: { row: unknown; columns: Column<unknown>[] }) {
  return (
    <Tr>
      {columns.map((column) => (
        <Td key={column.title} dataLabel={column.title} className={column.right ? 'to-right number' : undefined}>
          {column.cell(row)}
        </Td>
      ))}
    </Tr>
  );
});
