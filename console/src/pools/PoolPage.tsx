import { Button } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useParams } from 'react-router-dom';
import { answered, api, confirming, planned, type Pool, type Volume } from '../api/client';
import { usePool, useVolumes } from '../api/queries';
import { useMay } from '../api/session';
import { TextField } from '../forms/fields';
import { ActionDialog, type Action } from '../plan/ActionDialog';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Bar } from '../words/Bar';
import { Facts } from '../words/Facts';
import { count, duration, rate, readSize, size } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { poolHealth, Room } from './Pools';

export default function PoolPage() {
  const { pool: name = '' } = useParams();
  const pool = usePool(name);
  return (
    <PageFrame title={name} above={<Link to="/pools">Pools</Link>}>
      <Loaded query={pool} lines={8}>
        {(found) => (
          <>
            <Space pool={found} />
            <div className="two-columns">
              <Health pool={found} />
              <Sharing name={name} />
            </div>
            <Occupied name={name} />
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

function Space({ pool }: { pool: Pool }) {
  const may = useMay();
  const [growing, setGrowing] = useState(false);
  const [ending, setEnding] = useState(false);
  const path = { pool: pool.name };
  return (
    <Panel
      title="Space"
      actions={
        may('administrator') && (
          <span className="button-row">
            <Button size="sm" variant="secondary" onClick={() => setGrowing(true)}>
              Grow
            </Button>
            <Button size="sm" variant="danger" onClick={() => setEnding(true)}>
              Delete
            </Button>
          </span>
        )
      }
    >
      <Room pool={pool} />
      {pool.warning && <p>{pool.warning}</p>}
      {pool.advice && <p>{pool.advice}</p>}
      <Facts
        facts={[
          ['File or device', <code key="path">{pool.path}</code>],
          ['Size', size(pool.size_bytes)],
          ['In use', size(pool.used_bytes)],
          ['Left for hosts', size(pool.free_bytes)],
          ['Comes back by itself', size(pool.reclaimable_bytes)],
          ['Reserved and not used', pool.reserved_bytes ? size(pool.reserved_bytes) : null],
          ['Staged by transfers', pool.staged_bytes ? size(pool.staged_bytes) : null],
          ['Promised to hosts', `${size(pool.volume_bytes)} in ${count(pool.volumes)} volumes`],
        ]}
      />
      {growing && <Grow pool={pool} onClose={() => setGrowing(false)} />}
      {ending && (
        <ActionDialog
          onClose={() => setEnding(false)}
          action={{
            title: `Delete the pool ${pool.name}`,
            verb: 'Delete',
            typed: pool.name,
            plan: () => planned(api.DELETE('/api/v1/pools/{pool}', { params: { path, query: { plan: true } } })),
            run: () => answered(api.DELETE('/api/v1/pools/{pool}', { params: { path, header: confirming(pool.name) } })),
          }}
        />
      )}
    </Panel>
  );
}

function Grow({ pool, onClose }: { pool: Pool; onClose: () => void }) {
  const [text, setText] = useState('');
  const bytes = readSize(text);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Grow the pool ${pool.name}`,
        verb: 'Grow',
        given: typeof bytes === 'number' && String(bytes),
        fields: <TextField label="New size" value={text} onChange={setText} required placeholder="40G" help={`It has ${size(pool.size_bytes)}. A pool does not become smaller again.`} wrong={text && typeof bytes === 'string' ? bytes : null} />,
        plan: () => Promise.resolve({ would: [`${pool.path} will have ${size(bytes as number)}, for good.`, 'Hosts go on meanwhile.'] }),
        run: () => answered(api.POST('/api/v1/pools/{pool}/grow', { params: { path: { pool: pool.name } }, body: { size_bytes: bytes as number } })),
      }}
    />
  );
}

function Health({ pool }: { pool: Pool }) {
  const may = useMay();
  const [action, setAction] = useState<Action | null>(null);
  const { tone, word, why } = poolHealth(pool);
  const scrub = pool.scrub;
  const params = { path: { pool: pool.name } };
  const begin: Action = {
    title: `Scrub ${pool.name}`,
    verb: 'Begin',
    plan: () => Promise.resolve({ would: ['Everything that is in use is read and compared with its fingerprint.', 'Copies of metadata that are damaged are rewritten from the other one.', 'Hosts go on; it goes slower when they are busy.'] }),
    cost: [`${size(pool.used_bytes)} are read, at 64 MiB/s at first: about ${duration((pool.used_bytes ?? 0) / (64 * 1024 * 1024))}.`],
    run: () => answered(api.POST('/api/v1/pools/{pool}/scrub', { params, body: {} })),
  };
  const stop: Action = {
    title: `Stop the scrub of ${pool.name}`,
    verb: 'Stop',
    plan: () => Promise.resolve({ would: ['It can go on later from where it is.'] }),
    run: () => answered(api.DELETE('/api/v1/pools/{pool}/scrub', { params })),
  };
  const isRunning = scrub?.state === 'running' || scrub?.state === 'waiting';
  return (
    <Panel
      title="Health"
      actions={
        may('operator') && (
          <Button size="sm" variant="secondary" onClick={() => setAction(isRunning ? stop : begin)}>
            {isRunning ? 'Stop the scrub' : 'Scrub'}
          </Button>
        )
      }
    >
      <p className="verdict">
        <Status tone={tone}>{word}</Status>
      </p>
      <p>{why}</p>
      {scrub && isRunning && (
        <Bar
          part={scrub.read_bytes}
          whole={scrub.total_bytes}
          tone="busy"
          label={`scrub: ${size(scrub.read_bytes)} of ${size(scrub.total_bytes)}, ${rate(scrub.rate_bytes_per_second)}, ${duration(scrub.eta_seconds)} to go`}
        />
      )}
      <Facts
        facts={[
          ['Last scrub came to its end', scrub?.completed_at ? <Ago key="ago" at={scrub.completed_at} /> : 'never'],
          ['Scrub', scrub ? scrub.state : null],
          ['Damaged blocks', scrub ? count(scrub.damaged_blocks) : null],
          ['Copies rewritten', scrub ? count(scrub.rewritten_copies) : null],
          ['Damaged ranges', pool.quarantined?.length || null],
          ['Trouble', scrub?.error],
        ]}
      />
      {scrub && scrub.damage.length > 0 && (
        <ul className="bullets">
          {scrub.damage.map((range) => (
            <li key={`${range.volume} ${range.offset_bytes}`}>
              {range.volume}, {size(range.length_bytes)} at {size(range.offset_bytes)}
            </li>
          ))}
        </ul>
      )}
      {action && <ActionDialog action={action} onClose={() => setAction(null)} />}
    </Panel>
  );
}

function Sharing({ name }: { name: string }) {
  const dedups = useQuery({ queryKey: ['dedups'], queryFn: () => answered(api.GET('/api/v1/dedups')), refetchInterval: 15_000 });
  return (
    <Panel title="Sharing">
      <Loaded query={dedups}>
        {(all) => {
          const here = all.filter((dedup) => dedup.volume.startsWith(`${name}/`));
          if (here.length === 0) return <p className="quiet">No volume of this pool is deduplicated. Clones and snapshots share what they have in common all the same.</p>;
          return (
            <>
              <p>Blocks with several owners save {size(here[0]?.pool_saved_bytes)} in the whole pool, snapshots and clones included.</p>
              <ul className="needs">
                {here.map((dedup) => (
                  <li key={dedup.volume}>
                    <Link to={`/volumes/${dedup.volume}`}>{dedup.volume}</Link>: {dedup.phase ?? dedup.state}, saves {size(dedup.saved_bytes)}
                    {dedup.why && <p>{dedup.why}</p>}
                  </li>
                ))}
              </ul>
            </>
          );
        }}
      </Loaded>
    </Panel>
  );
}

const COLUMNS: Column<Volume>[] = [
  { title: 'Volume', width: 34, value: (volume) => volume.name, cell: (volume) => <Link to={`/volumes/${volume.name}`}>{volume.name}</Link> },
  { title: 'Size', width: 16, right: true, value: (volume) => volume.size_bytes, cell: (volume) => size(volume.size_bytes) },
  { title: 'Data now', width: 16, right: true, value: (volume) => volume.referenced_bytes, cell: (volume) => size(volume.referenced_bytes) },
  { title: 'Occupied', width: 18, right: true, value: (volume) => volume.occupied_bytes, cell: (volume) => size(volume.occupied_bytes) },
  { title: 'Snapshots', width: 16, right: true, value: (volume) => volume.snapshots, cell: (volume) => count(volume.snapshots) },
];

function Occupied({ name }: { name: string }) {
  const volumes = useVolumes();
  return (
    <Panel title="What is in it">
      <Loaded query={volumes}>
        {(all) => (
          <DataTable
            label={`Volumes of ${name}`}
            rows={all.filter((volume) => volume.name.startsWith(`${name}/`))}
            columns={COLUMNS}
            rowKey={(volume) => volume.uuid}
            sortedBy={3}
            descending
            empty="There are no volumes in it yet."
          />
        )}
      </Loaded>
    </Panel>
  );
}
