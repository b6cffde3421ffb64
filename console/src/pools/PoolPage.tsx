import { Button } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useParams } from 'react-router-dom';
import { answered, api, type Pool, type Schemas, type Volume } from '../api/client';
import { usePool, useVolumes } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Bar } from '../words/Bar';
import { Facts } from '../words/Facts';
import { count, duration, rate, size } from '../words/quantities';
import { sentence } from '../words/sentence';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { BeginScrub, DeletePool, DropStaged, Grow, ImportPool, Reopen, StopScrub } from './PoolDialogs';
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
            <Staged pool={found} />
            <Occupied pool={found} />
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

type PoolAction = 'grow' | 'delete' | 'reopen' | 'moved';

function Space({ pool }: { pool: Pool }) {
  const may = useMay();
  const [asked, setAsked] = useState<PoolAction | null>(null);
  const close = () => setAsked(null);
  const isOpen = pool.state === 'open';
  const buttons: [PoolAction, string, boolean][] = [
    // One that does not serve as it should.
    ['reopen', 'Open again', !isOpen && pool.state !== 'opening'],
    ['moved', 'It lies elsewhere', pool.state === 'failed'],
    ['grow', 'Grow', isOpen],
    ['delete', 'Delete', true],
  ];
  return (
    <Panel
      title="Space"
      actions={
        may('administrator') && (
          <span className="button-row">
            {buttons.map(
              ([name, label, is]) =>
                is && (
                  <Button key={name} size="sm" variant={name === 'delete' ? 'danger' : name === 'reopen' ? 'primary' : 'secondary'} onClick={() => setAsked(name)}>
                    {label}
                  </Button>
                ),
            )}
          </span>
        )
      }
    >
      <Room pool={pool} />
      {pool.warning && <p>{sentence(pool.warning)}</p>}
      {pool.advice && <p>{sentence(pool.advice)}</p>}
      <Facts
        facts={[
          ['File or device', <code key="path">{pool.path}</code>],
          ['Size', isOpen ? size(pool.size_bytes) : null],
          ['In use', isOpen ? size(pool.used_bytes) : null],
          ['Left for hosts', isOpen ? size(pool.free_bytes) : null],
          ['Comes back by itself', isOpen ? size(pool.reclaimable_bytes) : null],
          ['Reserved and not used', pool.reserved_bytes ? size(pool.reserved_bytes) : null],
          ['Promised to hosts', isOpen ? `${size(pool.volume_bytes)} in ${count(pool.volumes)} volumes` : null],
        ]}
      />
      {asked === 'grow' && <Grow pool={pool} onClose={close} />}
      {asked === 'delete' && <DeletePool pool={pool} onClose={close} />}
      {asked === 'reopen' && <Reopen pool={pool} onClose={close} />}
      {asked === 'moved' && <ImportPool pool={pool} onClose={close} />}
    </Panel>
  );
}

/** What transfers that were cut, or that run, have brought and not published. Not there where there is nothing. */
function Staged({ pool }: { pool: Pool }) {
  const may = useMay();
  const [dropping, setDropping] = useState<{ volume?: string } | null>(null);
  const staged = pool.staged ?? [];
  if (staged.length === 0 && !dropping) return null;
  const columns: Column<Schemas['StagedContent']>[] = [
    { title: 'Volume', width: 40, value: (each) => each.volume, cell: (each) => <Link to={`/mirrors/${pool.name}/${each.volume}`}>{`${pool.name}/${each.volume}`}</Link> },
    { title: 'Takes', width: 20, right: true, value: (each) => each.bytes, cell: (each) => size(each.bytes) },
    { title: 'Now', width: 25, value: (each) => String(each.transferring), cell: (each) => (each.transferring ? 'a transfer brings more' : 'the next transfer goes on from there') },
    {
      title: 'Actions',
      width: 15,
      cell: (each) => (
        <Button variant="link" isInline isDanger onClick={() => setDropping({ volume: each.volume })} aria-label={`Drop what is staged of ${pool.name}/${each.volume}`}>
          Drop
        </Button>
      ),
    },
  ];
  return (
    <Panel
      title="Staged by transfers"
      actions={
        may('operator') &&
        staged.length > 1 && (
          <Button size="sm" variant="secondary" onClick={() => setDropping({})}>
            Drop all
          </Button>
        )
      }
    >
      <p className="quiet gap-below">What a transfer has brought so far. One that was cut goes on from there, and nothing of it travels twice; drop it only if the space is needed.</p>
      <DataTable label={`Staged in ${pool.name}`} rows={staged} columns={may('operator') ? columns : columns.slice(0, -1)} rowKey={(each) => each.volume} searchable={false} empty="Nothing is staged." />
      {dropping && <DropStaged pool={pool} volume={dropping.volume} onClose={() => setDropping(null)} />}
    </Panel>
  );
}

function Health({ pool }: { pool: Pool }) {
  const may = useMay();
  const [asked, setAsked] = useState<'begin' | 'stop' | null>(null);
  const { tone, word, why } = poolHealth(pool);
  const scrub = pool.scrub;
  const isRunning = scrub?.state === 'running' || scrub?.state === 'waiting';
  return (
    <Panel
      title="Health"
      actions={
        may('operator') &&
        pool.state === 'open' && (
          <span className="button-row">
            <Button size="sm" variant="secondary" onClick={() => setAsked('begin')}>
              {isRunning ? 'Change the rate' : scrub?.state === 'stopped' ? 'Go on with the scrub' : 'Scrub'}
            </Button>
            {isRunning && (
              <Button size="sm" variant="secondary" onClick={() => setAsked('stop')}>
                Stop the scrub
              </Button>
            )}
          </span>
        )
      }
    >
      <p className="verdict">
        <Status tone={tone}>{word}</Status>
      </p>
      <p>{sentence(why)}</p>
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
          ['It may read', scrub && isRunning ? (scrub.limit_bytes_per_second ? rate(scrub.limit_bytes_per_second) : 'as much as the device gives') : null],
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
      {asked === 'begin' && <BeginScrub pool={pool} onClose={() => setAsked(null)} />}
      {asked === 'stop' && <StopScrub pool={pool} onClose={() => setAsked(null)} />}
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

function Occupied({ pool }: { pool: Pool }) {
  const volumes = useVolumes();
  return (
    <Panel title="What is in it">
      <Loaded query={volumes}>
        {(all) => (
          <DataTable
            label={`Volumes of ${pool.name}`}
            rows={all.filter((volume) => volume.name.startsWith(`${pool.name}/`))}
            columns={COLUMNS}
            rowKey={(volume) => volume.uuid}
            sortedBy={3}
            descending
            empty={pool.state === 'open' || pool.state === 'read-only' ? 'There are no volumes in it yet.' : 'It is not open, so what is in it is not known.'}
          />
        )}
      </Loaded>
    </Panel>
  );
}
