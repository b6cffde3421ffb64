import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import type { Pool } from '../api/client';
import { usePools } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Bar } from '../words/Bar';
import { count, size } from '../words/quantities';
import { Status, type Tone } from '../words/Status';
import { ImportPool } from './PoolDialogs';

/** How a pool is. *Proven* is one whose last scrub read everything and found no damage. */
export function poolHealth(pool: Pool): { tone: Tone; word: string; why: string } {
  if (pool.state === 'opening') return { tone: 'busy', word: 'Opening', why: 'It is being opened, and serves once that is done.' };
  if (pool.state === 'read-only') return { tone: 'danger', word: 'Read-only', why: pool.error ?? 'It accepts no changes until it is opened again.' };
  if (pool.state !== 'open') return { tone: 'danger', word: 'Failed', why: pool.error ?? 'The pool does not serve.' };
  if (pool.error) return { tone: 'danger', word: 'Trouble', why: pool.error };
  if ((pool.corrupt_blocks ?? 0) > 0) return { tone: 'danger', word: 'Damage found', why: `${pool.corrupt_blocks} blocks were found damaged since it was opened.` };
  const scrub = pool.scrub;
  if (scrub && (scrub.damaged_blocks > 0 || scrub.structures.length > 0)) return { tone: 'danger', word: 'Damage found', why: 'The last scrub found damage.' };
  if (pool.room === 'full' || pool.room === 'nearly-full') return { tone: pool.room === 'full' ? 'danger' : 'warning', word: pool.room === 'full' ? 'Full' : 'Nearly full', why: pool.warning ?? '' };
  if (pool.warning) return { tone: 'warning', word: pool.room === 'filling' ? 'Filling' : 'Warning', why: pool.warning };
  if (scrub?.completed_at) return { tone: 'proven', word: 'Scrubbed', why: 'The last scrub read everything that was in use and found no damage.' };
  return { tone: 'neutral', word: 'Open', why: 'It serves. No scrub has read all of it yet.' };
}

export function Room({ pool }: { pool: Pool }) {
  if (!pool.size_bytes) return <>–</>;
  const used = pool.used_bytes ?? 0;
  return (
    <Bar
      part={used}
      whole={pool.size_bytes}
      tone={pool.room === 'full' ? 'danger' : pool.room === 'enough' ? 'busy' : 'warning'}
      label={`${size(used)} of ${size(pool.size_bytes)}`}
    />
  );
}

const COLUMNS: Column<Pool>[] = [
  { title: 'Pool', width: 18, value: (pool) => pool.name, cell: (pool) => <Link to={`/pools/${pool.name}`}>{pool.name}</Link> },
  {
    title: 'Health',
    width: 18,
    value: (pool) => poolHealth(pool).word,
    cell: (pool) => {
      const { tone, word, why } = poolHealth(pool);
      return (
        <Status tone={tone} title={why}>
          {word}
        </Status>
      );
    },
  },
  { title: 'In use', width: 30, value: (pool) => pool.used_bytes, cell: (pool) => <Room pool={pool} /> },
  { title: 'Left for hosts', width: 14, right: true, value: (pool) => pool.free_bytes, cell: (pool) => size(pool.free_bytes) },
  { title: 'Volumes', width: 10, right: true, value: (pool) => pool.volumes, cell: (pool) => count(pool.volumes) },
  { title: 'Promised', width: 10, right: true, value: (pool) => pool.volume_bytes, cell: (pool) => size(pool.volume_bytes) },
];

export default function Pools() {
  const pools = usePools();
  const may = useMay();
  const [importing, setImporting] = useState(false);
  return (
    <PageFrame
      title="Pools"
      actions={
        may('administrator') && (
          <span className="button-row">
            <Button variant="secondary" onClick={() => setImporting(true)}>
              Take over a pool
            </Button>
            <Link className="button-link" to="/create/pool">
              Make a pool
            </Link>
          </span>
        )
      }
    >
      <Panel title="Pools of this site">
        <Loaded query={pools}>
          {(all) => <DataTable label="Pools" rows={all} columns={COLUMNS} rowKey={(pool) => pool.name} empty="There are no pools yet." />}
        </Loaded>
      </Panel>
      {importing && <ImportPool onClose={() => setImporting(false)} />}
    </PageFrame>
  );
}
