import { Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, confirming, planned, type Pool, type Schemas } from '../api/client';
import { TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { duration, readSize, size } from '../words/quantities';

interface Shown {
  pool: Pool;
  onClose: () => void;
}

/** A raw device may be open at another machine; a file is locked. */
const isDevice = (path: string) => path.startsWith('/dev/');

const Force = ({ checked, onChange }: { checked: boolean; onChange: (on: boolean) => void }) => (
  <Checkbox
    id="force"
    label="Take the device from another machine that has it open"
    description="Only if that machine is known to be off: if it lives, its pool accepts no changes from then on."
    isChecked={checked}
    onChange={(_, on) => onChange(on)}
  />
);

export function Grow({ pool, onClose }: Shown) {
  const [text, setText] = useState('');
  const bytes = readSize(text);
  // A device was made larger before, and its pool takes all of it.
  const takesAll = isDevice(pool.path) && text === '';
  const body: Schemas['GrowPool'] = typeof bytes === 'number' ? { size_bytes: bytes } : {};
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Grow the pool ${pool.name}`,
        verb: 'Grow',
        given: (takesAll || typeof bytes === 'number') && text,
        fields: (
          <TextField
            label="New size"
            value={text}
            onChange={setText}
            required={!isDevice(pool.path)}
            placeholder={isDevice(pool.path) ? undefined : '40G'}
            help={`It has ${size(pool.size_bytes)}. A pool does not become smaller again.${isDevice(pool.path) ? ' Empty: all that the device has by now.' : ''}`}
            wrong={text && typeof bytes === 'string' ? bytes : null}
          />
        ),
        plan: () => Promise.resolve({ would: [takesAll ? `The pool takes all that ${pool.path} has by now, for good.` : `${pool.path} will have ${size(bytes as number)}, for good.`, 'Hosts go on meanwhile.'] }),
        run: () => answered(api.POST('/api/v1/pools/{pool}/grow', { params: { path: { pool: pool.name } }, body })),
      }}
    />
  );
}

export function DeletePool({ pool, onClose }: Shown) {
  const path = { pool: pool.name };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Delete the pool ${pool.name}`,
        verb: 'Delete',
        typed: pool.name,
        plan: () => planned(api.DELETE('/api/v1/pools/{pool}', { params: { path, query: { plan: true } } })),
        run: () => answered(api.DELETE('/api/v1/pools/{pool}', { params: { path, header: confirming(pool.name) } })),
        leaves: { to: '/pools', keys: [['pool', pool.name]] },
      }}
    />
  );
}

export function Reopen({ pool, onClose }: Shown) {
  const [force, setForce] = useState(false);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Open the pool ${pool.name} again`,
        verb: 'Open again',
        given: String(force),
        fields: isDevice(pool.path) ? <Force checked={force} onChange={setForce} /> : undefined,
        plan: () =>
          Promise.resolve({
            would: [
              `${pool.path} is opened again, without a restart. What hosts have flushed is there.`,
              'Connections of hosts to its volumes are cut, and hosts connect again. Mirrors of the pool end and begin anew.',
              'Other pools go on.',
            ],
          }),
        cost: [pool.error ? `Mend the cause first, or it fails again: ${pool.error}` : 'Mend the cause first, or it fails again.'],
        run: () => answered(api.POST('/api/v1/pools/{pool}/reopen', { params: { path: { pool: pool.name } }, body: { force } })),
      }}
    />
  );
}

/** Takes over a pool that exists: one that came with its disk, or one of this site that lies elsewhere now. */
export function ImportPool({ pool, onClose }: { pool?: Pool; onClose: () => void }) {
  const [name, setName] = useState(pool?.name ?? '');
  const [path, setPath] = useState('');
  const [copy, setCopy] = useState(false);
  const [force, setForce] = useState(false);
  const body: Schemas['ImportPool'] = { name, path, as_copy: copy, force };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: pool ? `Say where the pool ${pool.name} lies now` : 'Take over a pool that exists',
        verb: 'Take it over',
        given: name !== '' && path.startsWith('/') && JSON.stringify(body),
        fields: (
          <>
            <TextField
              label="File or device"
              value={path}
              onChange={setPath}
              required
              placeholder="/srv/pools/tank.pool"
              help={pool ? `It was ${pool.path}.` : 'Of the site’s machine. Volumes, snapshots and replicas are in the pool itself.'}
              wrong={path && !path.startsWith('/') ? 'Write all of the path, from / on.' : null}
            />
            {!pool && <TextField label="Name of the pool here" value={name} onChange={setName} required placeholder="tank" />}
            {!pool && (
              <Checkbox id="as-copy" label="It is a copy of another pool" description="It becomes a pool of its own, and its mirrors end, for good." isChecked={copy} onChange={(_, on) => setCopy(on)} />
            )}
            {isDevice(path) && <Force checked={force} onChange={setForce} />}
          </>
        ),
        plan: () => planned(api.POST('/api/v1/imports', { params: { query: { plan: true } }, body })),
        run: () => answered(api.POST('/api/v1/imports', { body })),
        leaves: pool ? undefined : { to: `/pools/${name}`, keys: [] },
      }}
    />
  );
}

/** Discards what transfers that were cut have left: of one volume, or of all. */
export function DropStaged({ pool, volume, onClose }: Shown & { volume?: string }) {
  const name = pool.name;
  const thing = volume ? `${name}/${volume}` : name;
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Drop what is staged ${volume ? `of ${thing}` : `in the pool ${name}`}`,
        verb: 'Drop it',
        typed: thing,
        plan: () =>
          volume
            ? planned(api.DELETE('/api/v1/pools/{pool}/staged/{volume}', { params: { path: { pool: name, volume }, query: { plan: true } } }))
            : planned(api.DELETE('/api/v1/pools/{pool}/staged', { params: { path: { pool: name }, query: { plan: true } } })),
        run: async (): Promise<unknown> =>
          volume
            ? answered(api.DELETE('/api/v1/pools/{pool}/staged/{volume}', { params: { path: { pool: name, volume }, header: confirming(thing) } }))
            : answered(api.DELETE('/api/v1/pools/{pool}/staged', { params: { path: { pool: name }, header: confirming(thing) } })),
      }}
    />
  );
}

const RATE_AT_FIRST = 64 * 1024 * 1024;

/** Begins a scrub, goes on with one that was stopped, or changes what the one that runs may read. */
export function BeginScrub({ pool, onClose }: Shown) {
  const scrub = pool.scrub;
  const isRunning = scrub?.state === 'running' || scrub?.state === 'waiting';
  const wasStopped = scrub?.state === 'stopped';
  const [wanted, setWanted] = useState('');
  const [anew, setAnew] = useState(false);
  const body: Schemas['StartScrub'] = { ...(wanted && { rate: wanted }), ...(anew && { anew }) };
  const bytes = (pool.used_bytes ?? 0) - (wasStopped && !anew ? scrub.read_bytes : 0);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: isRunning ? `Rate of the scrub of ${pool.name}` : `Scrub ${pool.name}`,
        verb: isRunning ? 'Change' : wasStopped && !anew ? 'Go on' : 'Begin',
        given: (!isRunning || wanted !== '') && JSON.stringify(body),
        fields: (
          <>
            <TextField label="It may read" value={wanted} onChange={setWanted} placeholder="64MiB/s" help="200MB/s, or unlimited. Left empty: as before, 64MiB/s at first." />
            {wasStopped && <Checkbox id="anew" label="From the beginning" description="Without, it goes on where it was stopped." isChecked={anew} onChange={(_, on) => setAnew(on)} />}
          </>
        ),
        plan: () =>
          Promise.resolve({
            would: isRunning
              ? [`The scrub that runs may read ${wanted || 'as before'}, at once.`]
              : ['Everything that is in use is read and compared with its fingerprint.', 'Copies of metadata that are damaged are rewritten from the other one.', 'Hosts go on; it goes slower when they are busy.'],
          }),
        cost: isRunning || wanted ? [] : [`${size(bytes)} are read: about ${duration(bytes / (scrub?.limit_bytes_per_second ?? RATE_AT_FIRST))} at ${size(scrub?.limit_bytes_per_second ?? RATE_AT_FIRST)}/s.`],
        run: () => answered(api.POST('/api/v1/pools/{pool}/scrub', { params: { path: { pool: pool.name } }, body })),
      }}
    />
  );
}

export function StopScrub({ pool, onClose }: Shown) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Stop the scrub of ${pool.name}`,
        verb: 'Stop',
        plan: () => Promise.resolve({ would: ['It can go on later from where it is.'] }),
        run: () => answered(api.DELETE('/api/v1/pools/{pool}/scrub', { params: { path: { pool: pool.name } } })),
      }}
    />
  );
}
