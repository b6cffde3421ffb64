import { Button, Checkbox } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { answered, api, parts, planned, type Schemas, type Volume } from '../api/client';
import { unlessGone } from '../api/queries';
import { useMay } from '../api/session';
import { TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { Loaded, Panel } from '../shell/PageFrame';
import { Bar } from '../words/Bar';
import { Facts } from '../words/Facts';
import { count, duration, rate, size } from '../words/quantities';
import { sentence } from '../words/sentence';
import { Status, type Tone } from '../words/Status';
import { Ago } from '../words/Time';

type Dedup = Schemas['Dedup'];

const PHASES: Record<Schemas['DedupPhase'], string> = {
  waiting: 'Waits for its turn',
  learning: 'Looks at what is there',
  sharing: 'Shares equal blocks',
  counting: 'Counts what is saved',
  undoing: 'Gives each block its own place',
};

/** How deduplication of a volume is, in words. */
export function dedupState(dedup: Dedup): { tone: Tone; word: string } {
  if (dedup.why) return { tone: 'warning', word: 'Does not go on' };
  if (dedup.phase) return { tone: 'busy', word: PHASES[dedup.phase] };
  if (dedup.state === 'off') return { tone: 'neutral', word: 'Off' };
  return { tone: 'neutral', word: dedup.state === 'idle' ? 'Idle: looks again by itself' : 'Begins' };
}

/** Equal blocks of a volume at one place: whether that is wanted, how far it is, and what it saves. */
export function Sharing({ volume }: { volume: Volume }) {
  const may = useMay();
  const [asked, setAsked] = useState<'start' | 'stop' | 'undo' | null>(null);
  const path = parts(volume.name);
  const dedup = useQuery<Dedup>({
    queryKey: ['dedup', volume.name],
    queryFn: unlessGone(() => answered(api.GET('/api/v1/volumes/{pool}/{volume}/dedup', { params: { path } }))),
    refetchInterval: (query) => (query.state.data?.phase ? 2_000 : 15_000),
  });
  const found = dedup.data;
  const isOff = found?.state === 'off';
  const isUndoing = found?.phase === 'undoing';
  return (
    <Panel
      title="Deduplication"
      actions={
        may('operator') &&
        found && (
          <span className="button-row">
            {!volume.replica && !isUndoing && (
              <Button size="sm" variant="secondary" onClick={() => setAsked('start')}>
                {isOff ? 'Start deduplication' : 'Look again'}
              </Button>
            )}
            {(!isOff || isUndoing) && (
              <Button size="sm" variant="secondary" onClick={() => setAsked('stop')}>
                Stop
              </Button>
            )}
            {!volume.replica && !isUndoing && (!isOff || found.saved_bytes > 0) && (
              <Button size="sm" variant="secondary" onClick={() => setAsked('undo')}>
                Undo
              </Button>
            )}
          </span>
        )
      }
    >
      <Loaded query={dedup}>{(is) => <Found dedup={is} isReplica={volume.replica} />}</Loaded>
      {asked === 'start' && found && <Start volume={volume} dedup={found} onClose={() => setAsked(null)} />}
      {asked === 'stop' && (
        <ActionDialog
          onClose={() => setAsked(null)}
          action={{
            title: `Stop deduplication of ${volume.name}`,
            verb: 'Stop',
            plan: () => Promise.resolve({ would: ['Nothing of it is shared from now on. What is shared stays so.'] }),
            run: () => answered(api.DELETE('/api/v1/volumes/{pool}/{volume}/dedup', { params: { path } })),
          }}
        />
      )}
      {asked === 'undo' && (
        <ActionDialog
          onClose={() => setAsked(null)}
          action={{
            title: `Undo deduplication of ${volume.name}`,
            verb: 'Undo',
            typed: volume.name,
            plan: () => planned(api.POST('/api/v1/volumes/{pool}/{volume}/dedup/undo', { params: { path, query: { plan: true } }, body: {} })),
            run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/dedup/undo', { params: { path }, body: {} })),
          }}
        />
      )}
    </Panel>
  );
}

function Found({ dedup, isReplica }: { dedup: Dedup; isReplica: boolean }) {
  const { tone, word } = dedupState(dedup);
  const isUnused = dedup.state === 'off' && !dedup.phase && dedup.saved_bytes === 0;
  return (
    <>
      <p>
        <Status tone={tone}>{word}</Status>
      </p>
      {dedup.why && <p>{sentence(dedup.why)}</p>}
      {isUnused && (
        <p className="quiet">
          {isReplica ? 'A replica is its original’s to deduplicate.' : 'Equal blocks of this volume, and of others of its pool that have it, can lie at one place.'}
        </p>
      )}
      {dedup.phase && dedup.done !== null && dedup.done !== undefined && (
        <Bar part={dedup.done} whole={1} tone="busy" label={`${Math.round(dedup.done * 100)} %, ${rate(dedup.rate_bytes_per_second)}, ${duration(dedup.eta_seconds)} to go`} />
      )}
      {!isUnused && (
        <Facts
          facts={[
            ['Saves', `${size(dedup.saved_bytes)}, its part of what is shared`],
            ['Counted', dedup.counted_at && <Ago key="counted" at={dedup.counted_at} />],
            ['Comes free with snapshots', dedup.held_by_snapshots_bytes ? size(dedup.held_by_snapshots_bytes) : null],
            ['The whole pool saves', dedup.pool_saved_bytes !== null && dedup.pool_saved_bytes !== undefined ? `${size(dedup.pool_saved_bytes)}, with snapshots and clones` : null],
            ['Last pass', dedup.completed_at ? <Ago key="completed" at={dedup.completed_at} /> : null],
            ['It looked at', dedup.scanned_bytes ? `${size(dedup.scanned_bytes)}, and shared ${size(dedup.shared_bytes)}` : null],
            ['Next pass', dedup.next_at && <Ago key="next" at={dedup.next_at} />],
            ['May read', dedup.state === 'off' ? null : dedup.limit_bytes_per_second ? rate(dedup.limit_bytes_per_second) : 'as much as the device gives'],
            ['Blocks with all owners they may have', dedup.limited_blocks ? count(dedup.limited_blocks) : null],
            ['Damaged blocks met', dedup.damaged_blocks ? count(dedup.damaged_blocks) : null],
          ]}
        />
      )}
    </>
  );
}

function Start({ volume, dedup, onClose }: { volume: Volume; dedup: Dedup; onClose: () => void }) {
  const isOff = dedup.state === 'off';
  const [wanted, setWanted] = useState('');
  const [anew, setAnew] = useState(false);
  const body: Schemas['StartDedup'] = { ...(wanted && { rate: wanted }), ...(anew && { anew }) };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: isOff ? `Deduplicate ${volume.name}` : `Look again for equal blocks of ${volume.name}`,
        verb: isOff ? 'Start' : 'Look',
        given: JSON.stringify(body),
        fields: (
          <>
            <TextField label="It may read" value={wanted} onChange={setWanted} placeholder="64MiB/s" help="A rate, or unlimited. Left empty: as before, 64MiB/s at first." />
            <Checkbox id="anew" label="All of the volume" description="Without, only what has changed since the last pass." isChecked={anew} onChange={(_, on) => setAnew(on)} />
          </>
        ),
        plan: () =>
          Promise.resolve({
            would: [
              'Equal blocks of it, and of other volumes of its pool that have this, come to lie at one place.',
              'Hosts go on, and notice nothing. What they write has a place of its own again.',
              isOff ? 'It stays on: what changes is looked at once an hour.' : 'It begins at once.',
            ],
          }),
        cost: ['Metadata is read, and blocks that are about to be shared. A volume that is read from end to end may be read in several pieces afterwards.'],
        run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/dedup', { params: { path: parts(volume.name) }, body })),
      }}
    />
  );
}
