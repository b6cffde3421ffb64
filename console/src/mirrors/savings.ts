import type { TransferRecord } from '../api/client';

export const wireOf = (record: TransferRecord) => record.wire_bytes_sent + record.wire_bytes_received;

/** What the transfer brought, as the hosts wrote it: also what the far site held already and what was named only. */
export function broughtOf(record: TransferRecord): number {
  return record.changed_bytes + (record.levels?.known.in_bytes ?? 0);
}

export interface Savings {
  transfers: number;
  brought: number;
  wire: number;
}

export function savings(records: TransferRecord[]): Savings {
  const sum = { transfers: records.length, brought: 0, wire: 0 };
  for (const record of records) {
    sum.brought += broughtOf(record);
    sum.wire += wireOf(record);
  }
  return sum;
}

/** Both, added up over time, oldest first: for a plot. Times are seconds. */
export function overTime(records: TransferRecord[]): [number[], number[], number[]] {
  const sorted = [...records].sort((a, b) => a.ended_at.localeCompare(b.ended_at));
  const [times, brought, wire]: [number[], number[], number[]] = [[], [], []];
  let [allBrought, allWire] = [0, 0];
  for (const record of sorted) {
    allBrought += broughtOf(record);
    allWire += wireOf(record);
    times.push(Date.parse(record.ended_at) / 1000);
    brought.push(allBrought);
    wire.push(allWire);
  }
  return [times, brought, wire];
}

/** What the last updates have cost, for a forecast; null: there were none. */
export function lately(records: TransferRecord[]): { count: number; wire: number; seconds: number } | null {
  const updates = records.filter((record) => record.kind === 'update' && record.result === 'ok').slice(0, 10);
  if (updates.length === 0) return null;
  const mean = (of: (record: TransferRecord) => number) => updates.reduce((sum, record) => sum + of(record), 0) / updates.length;
  return { count: updates.length, wire: mean(wireOf), seconds: mean((record) => record.duration_seconds) };
}
