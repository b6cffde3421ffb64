import type { Schemas, TransferRecord } from '../api/client';
import { Bar } from '../words/Bar';
import { percent, size } from '../words/quantities';

const KINDS: [keyof Schemas['Levels'], string][] = [
  ['known', 'Known: the far site held it, only its name travelled'],
  ['repeat', 'Repeat: its place elsewhere was named'],
  ['delta', 'Delta: compressed against similar content'],
  ['compressed', 'Compressed by itself'],
  ['raw', 'Raw: as it is'],
];

/** How the bytes of the listed transfers travelled, and what each kind cost. */
export function Kinds({ records }: { records: TransferRecord[] }) {
  const counted = records.flatMap((record) => (record.levels ? [record.levels] : []));
  const sum = (kind: keyof Schemas['Levels'], of: 'in_bytes' | 'out_bytes') =>
    counted.reduce((all, levels) => all + levels[kind][of], 0);
  const whole = KINDS.reduce((all, [kind]) => all + sum(kind, 'in_bytes'), 0);
  if (whole === 0) return <p className="quiet">No transfer has brought data yet.</p>;
  const overhead = records.reduce((all, record) => all + (record.overhead_bytes ?? 0), 0);
  return (
    <table className="plain-table">
      <caption className="quiet">
        Of {counted.length === 1 ? 'one transfer' : `${counted.length} transfers`}, {size(whole)} in all. Headers, messages and TLS took {size(overhead)} more.
      </caption>
      <thead>
        <tr>
          <th scope="col">Kind</th>
          <th scope="col">Of the data</th>
          <th scope="col" className="to-right">
            On the wire
          </th>
        </tr>
      </thead>
      <tbody>
        {KINDS.map(([kind, words]) => (
          <tr key={kind}>
            <th scope="row">{words}</th>
            <td>
              <Bar part={sum(kind, 'in_bytes')} whole={whole} tone="busy" label={`${size(sum(kind, 'in_bytes'))}, ${percent(sum(kind, 'in_bytes'), whole)}`} />
            </td>
            <td className="to-right number">{size(sum(kind, 'out_bytes'))}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
