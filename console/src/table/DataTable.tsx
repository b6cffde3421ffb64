import { Button, SearchInput } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useDeferredValue, useMemo, useState } from 'react';

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

function compare(a: string | number | null | undefined, b: string | number | null | undefined): number {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}

/** Rows that can be sorted and found, a page of them at a time. */
export function DataTable<Row>({
  label,
  rows,
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
  const [sort, setSort] = useState({ column: sortedBy, down: descending });
  const [search, setSearch] = useState('');
  const [page, setPage] = useState(0);
  const wanted = useDeferredValue(search.trim().toLowerCase());

  const found = useMemo(() => {
    const value = columns[sort.column]?.value;
    const searched = columns.flatMap((column) => (column.value ? [column.value] : []));
    const matching = wanted
      ? rows.filter((row) => searched.some((of) => String(of(row) ?? '').toLowerCase().includes(wanted)))
      : [...rows];
    if (value) matching.sort((a, b) => compare(value(a), value(b)) * (sort.down ? -1 : 1));
    return matching;
  }, [rows, columns, sort, wanted]);

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
            {shown.map((row) => (
              <Tr key={rowKey(row)}>
                {columns.map((column) => (
                  <Td key={column.title} dataLabel={column.title} className={column.right ? 'to-right number' : undefined}>
                    {column.cell(row)}
                  </Td>
                ))}
              </Tr>
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
