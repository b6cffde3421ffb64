import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, confirming, parts, planned, type Schemas, type Volume } from '../api/client';
import { useSnapshots, useVolume, useVolumes, type SeenMirror } from '../api/queries';
import { useMay } from '../api/session';
import { More, SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { CopyLine } from '../words/CopyLine';
import { age, duration, readDuration } from '../words/quantities';
import { Ago, useNow } from '../words/Time';
import { EvenIfDamaged, isDamaged } from '../volumes/VolumeDialogs';
import { began, forgotten, heldDrills, kept, type Held } from './drills';
import { lagOf } from './verdict';

const LEASE_MAX = 3600;

/** Begins a drill: of which point, under which name, and when its volume goes. */
export function BeginDrill({ mirror, onClose }: { mirror: SeenMirror; onClose: () => void }) {
  const snapshots = useSnapshots(mirror.name);
  const volume = useVolume(mirror.name);
  const may = useMay();
  const mayDelete = may('administrator');
  const { pool } = parts(mirror.name);
  const [at, setAt] = useState('');
  const [name, setName] = useState('');
  const [goes, setGoes] = useState(mayDelete ? 'deleted' : 'itself');
  const [lease, setLease] = useState('1h');
  const [damaged, setDamaged] = useState(false);
  const seconds = readDuration(lease);
  const wrong = typeof seconds === 'string' ? seconds : seconds > LEASE_MAX ? 'An hour at most. It can be kept for another hour again and again.' : null;
  const isLeased = goes === 'itself';
  const body: Schemas['StartDrill'] = {
    ...(at && { at }),
    ...(name && { name: `${pool}/${name}` }),
    ...(isLeased && !wrong && { lease_seconds: seconds as number }),
    ...(damaged && { even_if_damaged: damaged }),
  };
  const point = snapshots.data?.find((snapshot) => snapshot.name === at);
  const lag = lagOf(mirror, Date.now());
  const old = point ? (Date.now() - Date.parse(point.created_at)) / 1000 : lag;
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Recovery drill with ${mirror.name}`,
        verb: 'Begin the drill',
        given: !(isLeased && wrong) && JSON.stringify(body),
        fields: (
          <>
            <SelectField
              label="Point in time to try"
              value={at}
              onChange={setAt}
              options={[
                { value: '', label: 'The one that the replica shows' },
                ...(snapshots.data ?? [])
                  .toSorted((a, b) => b.created_at.localeCompare(a.created_at))
                  .map((snapshot) => ({ value: snapshot.name, label: `${snapshot.name}, ${snapshot.created_at.slice(0, 19).replace('T', ' ')} UTC` })),
              ]}
            />
            <TextField label="Name of the clone" value={name} onChange={setName} placeholder={`${parts(mirror.name).volume}-drill-…`} help={`In the pool ${pool}. Empty: by its moment`} />
            <SelectField
              label="The clone goes"
              value={goes}
              onChange={setGoes}
              options={[
                { value: 'deleted', label: 'when an administrator deletes it' },
                { value: 'itself', label: 'by itself, unless it is kept' },
              ]}
              help={mayDelete ? undefined : 'What stays only an administrator can delete.'}
            />
            {isLeased && <TextField label="After" value={lease} onChange={setLease} required wrong={wrong} help="An hour at most. While somebody has it open it stays, and it can be kept for as long again." />}
            {volume.data && isDamaged(volume.data) && <EvenIfDamaged checked={damaged} onChange={setDamaged} />}
            <More label="By itself, with a command and a report">
              <CopyLine label="At a machine with the command line" text={`farside mirror drill ${mirror.name} --run 'COMMAND' --json`} />
            </More>
          </>
        ),
        plan: () =>
          Promise.resolve({
            would: [
              `A writable clone of what ${mirror.name} ${at ? `showed as ${at}` : 'shows'} is made in its pool${old === null ? '' : `: data that is ${age(old)} old`}.`,
              'Mirroring goes on. Nobody at the other site notices.',
              isLeased ? `The clone is deleted ${lease} from now, once nobody has it open, unless it is kept.` : 'The clone stays until it is deleted.',
            ],
          }),
        cost: ['Nothing on the link, and at first no space: the clone takes what is written to it.'],
        run: async () => {
          const drill = await answered(api.POST('/api/v1/mirrors/{pool}/{volume}/drill', { params: { path: parts(mirror.name) }, body }));
          began(drill, body.lease_seconds ?? null);
          return drill;
        },
        done: (answer) => {
          const drill = answer as Schemas['Drill'];
          return (
            <>
              <p className="gap-below">
                {drill.name} was made of {drill.snapshot} in {duration(drill.duration_seconds)}. Its data is {duration(drill.age_seconds)} old. Try what your recovery
                needs with it; then end the drill, below on the page of the mirror.
              </p>
              <CopyLine label="Look at it, at the site’s machine" text={`nbdinfo '${drill.uri}'`} />
              <CopyLine label="Copy it out" text={`nbdcopy '${drill.uri}' drill.img`} />
              <p>
                <Link to={`/volumes/${drill.name}`}>Its page: how to connect, and which hosts may</Link>
              </p>
            </>
          );
        },
      }}
    />
  );
}

/** Clones of a replica: drills that are not over, and others. Not there where there are none. */
export function Drills({ replica }: { replica: string }) {
  const volumes = useVolumes();
  const may = useMay();
  const now = useNow();
  const [asked, setAsked] = useState<{ what: 'keep' | 'end'; volume: Volume; held: Held | undefined } | null>(null);
  const held = heldDrills();
  const clones = (volumes.data ?? []).filter((volume) => volume.origin?.startsWith(`${replica}@`));
  if (clones.length === 0 && !asked) return null;
  const of = (volume: Volume) => held.find(({ drill }) => drill.uuid === volume.uuid);
  const columns: Column<Volume>[] = [
    { title: 'Clone', width: 34, value: (volume) => volume.name, cell: (volume) => <Link to={`/volumes/${volume.name}`}>{volume.name}</Link> },
    { title: 'Data of', width: 16, value: (volume) => volume.origin_created_at, cell: (volume) => <Ago at={volume.origin_created_at} /> },
    { title: 'Open now', width: 16, value: (volume) => volume.writers, cell: (volume) => `${volume.writers ?? 0} write, ${volume.readers ?? 0} read` },
    {
      title: 'It goes',
      width: 16,
      cell: (volume) => {
        const until = of(volume)?.until;
        if (!until) return 'when it is deleted';
        return until > now ? `in ${age((until - now) / 1000)}` : 'once nobody has it open';
      },
    },
    {
      title: 'Actions',
      width: 18,
      cell: (volume) => {
        const mine = of(volume);
        return (
          <span className="button-row">
            {mine?.until && (
              <Button variant="link" isInline onClick={() => setAsked({ what: 'keep', volume, held: mine })} aria-label={`Keep ${volume.name}`}>
                Keep
              </Button>
            )}
            {(mine?.until || may('administrator')) && (
              <Button variant="link" isInline isDanger onClick={() => setAsked({ what: 'end', volume, held: mine })} aria-label={`End the drill ${volume.name}`}>
                End the drill
              </Button>
            )}
          </span>
        );
      },
    },
  ];
  return (
    <Panel title="Drills and other clones of it">
      <DataTable label={`Clones of ${replica}`} rows={clones} columns={may('operator') ? columns : columns.slice(0, -1)} rowKey={(volume) => volume.uuid} searchable={false} empty="There are none any more." />
      {asked?.what === 'keep' && asked.held && <Keep held={asked.held} onClose={() => setAsked(null)} />}
      {asked?.what === 'end' && <End volume={asked.volume} held={asked.held} onClose={() => setAsked(null)} />}
    </Panel>
  );
}

function Keep({ held, onClose }: { held: Held; onClose: () => void }) {
  const { drill, lease } = held;
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Keep ${drill.name}`,
        verb: 'Keep it',
        plan: () => Promise.resolve({ would: [`It stays for another ${duration(lease)}, from now on.`] }),
        run: async () => {
          const volume = await answered(api.POST('/api/v1/drills/{pool}/{volume}/renew', { params: { path: parts(drill.name) }, body: { uuid: drill.uuid } }));
          kept(drill.uuid);
          return volume;
        },
      }}
    />
  );
}

const OUTCOMES: Record<string, string> = { none: 'nothing is to be written down', ok: 'it worked', failed: 'it did not work' };

/** Ends a drill: its volume goes, and what came of it is written into the log of the mirror. */
function End({ volume, held, onClose }: { volume: Volume; held: Held | undefined; onClose: () => void }) {
  const [outcome, setOutcome] = useState('none');
  const [tried, setTried] = useState('');
  const path = parts(volume.name);
  // What was begun without a time of its own is a volume like any other.
  const isLeased = held?.until !== null && held !== undefined;
  const isTold = held !== undefined && outcome !== 'none';
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `End the drill with ${volume.name}`,
        verb: 'End it',
        given: `${outcome}`,
        typed: volume.name,
        fields: held && (
          <>
            <SelectField label="What came of it" value={outcome} onChange={setOutcome} options={Object.entries(OUTCOMES).map(([value, label]) => ({ value, label }))} help="Written into the log of the mirror, with the recovery point and time that were reached." />
            {isTold && <TextField label="What was tried" value={tried} onChange={setTried} placeholder="started the mail server on it" />}
          </>
        ),
        plan: async () =>
          isLeased
            ? { would: [`${volume.name} is deleted, with all that was written to it. The replica stays as it is.`] }
            : planned(api.DELETE('/api/v1/volumes/{pool}/{volume}', { params: { path, query: { plan: true } } })),
        run: async () => {
          if (isTold) {
            const seconds = (Date.now() - held.began) / 1000;
            const run: Schemas['DrillRun'] = { command: tried || 'by hand', result: outcome as Schemas['DrillResult'], deleted: true, duration_seconds: seconds, recovery_seconds: seconds };
            await answered(api.POST('/api/v1/mirrors/{pool}/{volume}/drilled', { params: { path: parts(held.drill.replica) }, body: { ...held.drill, run } }));
          }
          const gone: unknown = isLeased
            ? await answered(api.POST('/api/v1/drills/{pool}/{volume}/end', { params: { path }, body: { uuid: volume.uuid } }))
            : await answered(api.DELETE('/api/v1/volumes/{pool}/{volume}', { params: { path, header: confirming(volume.name) } }));
          forgotten(volume.uuid);
          return gone;
        },
      }}
    />
  );
}
