import { lazy, Suspense, useMemo } from 'react';
import type { TransferRecord } from '../api/client';
import { DataTable, type Column } from '../table/DataTable';
import { KINDS } from '../words/kinds';
import { duration, size } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { broughtOf, lately, wireOf } from './savings';

const Plot = lazy(() => import('../charts/Plot'));

const COLUMNS: Column<TransferRecord>[] = [
  { title: 'Ended', width: 13, value: (record) => record.ended_at, cell: (record) => <Ago at={record.ended_at} /> },
  { title: 'Kind', width: 10, value: (record) => KINDS[record.kind], cell: (record) => KINDS[record.kind] },
  {
    title: 'Result',
    width: 20,
    value: (record) => `${record.result} ${record.reason ?? ''}`,
    cell: (record) => (
      <>
        <Status tone={record.result === 'ok' ? 'proven' : record.result === 'failed' ? 'danger' : 'warning'}>{record.result}</Status>
        {record.reason && <div className="quiet">{record.reason}</div>}
        {record.resumed && <div className="quiet">went on with what an earlier one had brought</div>}
      </>
    ),
  },
  { title: 'Changed', width: 12, right: true, value: broughtOf, cell: (record) => size(broughtOf(record)) },
  { title: 'On the wire', width: 12, right: true, value: wireOf, cell: (record) => size(wireOf(record)) },
  { title: 'Took', width: 9, right: true, value: (record) => record.duration_seconds, cell: (record) => duration(record.duration_seconds) },
  { title: 'Point', width: 24, value: (record) => record.incremental, cell: (record) => record.incremental ?? '–' },
];

/** Transfers that have ended, as a plot and one by one. */
export function Timeline({ records }: { records: TransferRecord[] }) {
  const data = useMemo(() => {
    const sorted = [...records].sort((a, b) => a.ended_at.localeCompare(b.ended_at));
    return [
      sorted.map((record) => Date.parse(record.ended_at) / 1000),
      sorted.map(broughtOf),
      sorted.map(wireOf),
    ];
  }, [records]);
  const mean = lately(records);
  const sentence = mean
    ? mean.count === 1
      ? `The last update took ${size(mean.wire)} on the wire and ${duration(mean.seconds)}.`
      : `The last ${mean.count} updates took ${size(mean.wire)} on the wire and ${duration(mean.seconds)} in the mean.`
    : 'No update has come to its end yet.';
  return (
    <>
      <p>{sentence}</p>
      {records.length > 1 && (
        <Suspense fallback={<div className="plot-room" />}>
          <Plot
            data={data}
            value={size}
            sentence={sentence}
            height={160}
            lines={[
              { label: 'Changed data', colour: '--plot-brought', points: true },
              { label: 'On the wire', colour: '--plot-wire', points: true },
            ]}
          />
        </Suspense>
      )}
      <DataTable
        label="Transfers"
        rows={records}
        columns={COLUMNS}
        rowKey={(record) => record.id + record.started_at}
        descending
        empty="No transfer has ended yet."
      />
    </>
  );
}
