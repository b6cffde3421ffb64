import { Link } from 'react-router-dom';
import type { Schemas } from '../api/client';
import { DataTable, type Column } from '../table/DataTable';
import { KINDS } from '../words/kinds';
import { size } from '../words/quantities';
import { Ago } from '../words/Time';

type Line = Schemas['LogLine'];

function said(line: Line): string {
  return [line.kind && KINDS[line.kind], line.requested_by && `by ${line.requested_by}`, line.bytes !== null && line.bytes !== undefined && `${size(line.bytes)} on the wire`, line.reason]
    .filter(Boolean)
    .join(', ');
}

const WHEN: Column<Line> = { title: 'When', width: 18, value: (line) => line.at, cell: (line) => <Ago at={line.at} /> };
const MIRROR: Column<Line> = { title: 'Mirror', width: 24, value: (line) => line.mirror, cell: (line) => <Link to={`/mirrors/${line.mirror}`}>{line.mirror}</Link> };
const EVENT: Column<Line> = { title: 'What', width: 14, value: (line) => line.event, cell: (line) => line.event };
const SAID: Column<Line> = { title: 'More', width: 44, value: said, cell: said };

/** What happened to a mirror, or to all. */
export function Log({ lines, ofAll = false }: { lines: Line[]; ofAll?: boolean }) {
  return (
    <DataTable
      label="Log"
      rows={lines}
      columns={ofAll ? [WHEN, MIRROR, EVENT, SAID] : [WHEN, EVENT, { ...SAID, width: 68 }]}
      rowKey={(line) => `${line.at} ${line.mirror} ${line.event} ${line.transfer ?? ''}`}
      descending
      empty="Nothing has happened yet."
    />
  );
}
