import { Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, confirming, parts, planned, type Schemas, type Snapshot, type Volume } from '../api/client';
import { asksOfVolume } from '../api/queries';
import { TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { readSize, size } from '../words/quantities';

export type VolumeActionName = 'snapshot' | 'limits' | 'resize' | 'rename' | 'delete' | 'clone' | 'hold' | 'rollback' | 'rename-snapshot' | 'delete-snapshot';

interface Shown {
  volume: Volume;
  onClose: () => void;
}

/** The dialog of an action of a volume, or of a snapshot of it. */
export function VolumeDialog({ name, snapshot, ...shown }: Shown & { name: VolumeActionName; snapshot?: Snapshot }) {
  if (name === 'snapshot') return <TakeSnapshot {...shown} />;
  if (name === 'limits') return <Limits {...shown} />;
  if (name === 'resize') return <Resize {...shown} />;
  if (name === 'rename') return <RenameVolume {...shown} />;
  if (name === 'delete') return <DeleteVolume {...shown} />;
  return snapshot ? <OfSnapshot name={name} snapshot={snapshot} {...shown} /> : null;
}

export const isDamaged = (volume: Volume) => (volume.quarantined?.length ?? 0) > 0;

export const EvenIfDamaged = ({ checked, onChange }: { checked: boolean; onChange: (on: boolean) => void }) => (
  <Checkbox id="even-if-damaged" label="Even if part of it is damaged" description="Without, a snapshot of which part cannot be read is refused." isChecked={checked} onChange={(_, on) => onChange(on)} />
);

function TakeSnapshot({ volume, onClose }: Shown) {
  const [name, setName] = useState('');
  const [others, setOthers] = useState('');
  const volumes = [volume.name, ...others.split(/[\s,]+/).filter(Boolean)];
  const snapshots = volumes.map((each) => `${each}@${name}`);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Take a snapshot of ${volume.name}`,
        verb: 'Take it',
        given: name !== '' && snapshots.join(' '),
        fields: (
          <>
            <TextField label="Name" value={name} onChange={setName} required placeholder="monday" />
            <TextField label="Together with" value={others} onChange={setOthers} placeholder={`${parts(volume.name).pool}/log`} help="Other volumes of the same pool, of the same instant; empty: this one alone" />
          </>
        ),
        plan: () => Promise.resolve({ would: [...snapshots.map((each) => `${each} holds what hosts have flushed until this moment.`), 'Hosts go on writing.'] }),
        cost: ['At first no space: it keeps what hosts replace from now on.'],
        run: () => answered(api.POST('/api/v1/snapshots', { body: { snapshots } })),
      }}
    />
  );
}

function Limits({ volume, onClose }: Shown) {
  const was = {
    quota: String(volume.quota_bytes ?? 0),
    reserve: String(volume.reserve_bytes ?? 0),
    to: String(volume.autogrow?.to_bytes ?? 0),
    step: String(volume.autogrow?.step_bytes ?? 0),
  };
  const [given, setGiven] = useState(was);
  const read = { quota: readSize(given.quota), reserve: readSize(given.reserve), to: readSize(given.to), step: readSize(given.step) };
  const wrong = (of: keyof typeof read) => (typeof read[of] === 'string' ? read[of] : null);
  const fill = (of: keyof typeof given) => (text: string) => setGiven({ ...given, [of]: text });
  const { quota, reserve, to, step } = read;
  const body: Schemas['SetVolume'] = {};
  const would: string[] = [];
  if (given.quota !== was.quota && typeof quota === 'number') {
    body.quota_bytes = quota;
    would.push(quota ? `It may occupy ${size(quota)}; it occupies ${size(volume.occupied_bytes)} now.` : 'It may occupy as much as there is.');
  }
  if (given.reserve !== was.reserve && typeof reserve === 'number') {
    body.reserve_bytes = reserve;
    would.push(reserve ? `${size(reserve)} of the pool are kept for it; nobody else gets them.` : 'Nothing is kept for it.');
  }
  if ((given.to !== was.to || given.step !== was.step) && typeof to === 'number' && typeof step === 'number') {
    body.autogrow = { to_bytes: to, ...(step && { step_bytes: step }) };
    would.push(
      to ? `Whenever 90 % of it are written it grows by ${step ? size(step) : 'a tenth of its size'}, up to ${size(to)}. It has ${size(volume.size_bytes)} now.` : 'It does not grow by itself.',
    );
  }
  const isRight = would.length > 0 && Object.values(read).every((bytes) => typeof bytes === 'number');
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Limits of ${volume.name}`,
        verb: 'Change',
        given: isRight && JSON.stringify(body),
        fields: (
          <>
            <TextField label="Quota" value={given.quota} onChange={fill('quota')} help="What it may occupy with its snapshots; 0: as much as there is" wrong={wrong('quota')} />
            <TextField label="Reservation" value={given.reserve} onChange={fill('reserve')} help="What is kept for it; 0: nothing" wrong={wrong('reserve')} />
            <TextField label="Grows by itself up to" value={given.to} onChange={fill('to')} help="0: it does not" wrong={wrong('to')} />
            {given.to !== '0' && <TextField label="By so much at once" value={given.step} onChange={fill('step')} help="0: a tenth of its size" wrong={wrong('step')} />}
          </>
        ),
        plan: () => Promise.resolve({ would }),
        run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/limits', { params: { path: parts(volume.name) }, body })),
      }}
    />
  );
}

function Resize({ volume, onClose }: Shown) {
  const [text, setText] = useState('');
  const bytes = readSize(text);
  const path = parts(volume.name);
  const body = { size_bytes: typeof bytes === 'number' ? bytes : 0 };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Resize ${volume.name}`,
        verb: 'Resize',
        given: typeof bytes === 'number' && String(bytes),
        typed: typeof bytes === 'number' && bytes < volume.size_bytes ? volume.name : undefined,
        fields: <TextField label="New size" value={text} onChange={setText} required placeholder="20G" help={`It has ${size(volume.size_bytes)}.`} wrong={text && typeof bytes === 'string' ? bytes : null} />,
        plan: () => planned(api.POST('/api/v1/volumes/{pool}/{volume}/resize', { params: { path, query: { plan: true } }, body })),
        run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/resize', { params: { path, header: confirming(volume.name) }, body })),
      }}
    />
  );
}

function RenameVolume({ volume, onClose }: Shown) {
  const was = parts(volume.name);
  const [name, setName] = useState(was.volume);
  const full = `${was.pool}/${name}`;
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Rename ${volume.name}`,
        verb: 'Rename',
        given: name !== '' && name !== was.volume && name,
        fields: <TextField label="New name" value={name} onChange={setName} required help={`Within the pool ${was.pool}`} />,
        plan: () =>
          Promise.resolve({
            would: [
              `It is called ${full} from then on, with all its snapshots. Nothing of its data is touched.`,
              'Hosts that have it open go on. Whoever opens it anew has to use the new name.',
              'Rights of hosts and peers stay with it. While a mirror stands on it, it is refused.',
            ],
          }),
        run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/rename', { params: { path: was }, body: { name } })),
        leaves: { to: `/volumes/${full}`, keys: asksOfVolume(volume.name) },
      }}
    />
  );
}

function DeleteVolume({ volume, onClose }: Shown) {
  const path = parts(volume.name);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Delete ${volume.name}`,
        verb: 'Delete',
        typed: volume.name,
        plan: () => planned(api.DELETE('/api/v1/volumes/{pool}/{volume}', { params: { path, query: { plan: true } } })),
        run: () => answered(api.DELETE('/api/v1/volumes/{pool}/{volume}', { params: { path, header: confirming(volume.name) } })),
        leaves: { to: '/volumes', keys: asksOfVolume(volume.name) },
      }}
    />
  );
}

function OfSnapshot({ name, snapshot, volume, onClose }: Shown & { name: VolumeActionName; snapshot: Snapshot }) {
  const [wanted, setWanted] = useState('');
  const [damaged, setDamaged] = useState(false);
  const full = `${volume.name}@${snapshot.name}`;
  const path = { ...parts(volume.name), snapshot: snapshot.name };
  const dry = { path, query: { plan: true } };
  if (name === 'clone') {
    const target = `${parts(volume.name).pool}/${wanted}`;
    return (
      <ActionDialog
        onClose={onClose}
        action={{
          title: `Clone ${full}`,
          verb: 'Clone',
          given: wanted !== '' && `${wanted} ${damaged}`,
          fields: (
            <>
              <TextField label="Name of the new volume" value={wanted} onChange={setWanted} required help="In the same pool" />
              {isDamaged(volume) && <EvenIfDamaged checked={damaged} onChange={setDamaged} />}
            </>
          ),
          plan: () => Promise.resolve({ would: [`${target} begins as ${full}, and is writable.`, 'The snapshot stays as it is, and can be deleted without harm to the clone.'] }),
          cost: ['At first no space: it takes what is written to it.'],
          run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/clone', { params: { path }, body: { name: target, even_if_damaged: damaged } })),
        }}
      />
    );
  }
  if (name === 'rename-snapshot') {
    return (
      <ActionDialog
        onClose={onClose}
        action={{
          title: `Rename ${full}`,
          verb: 'Rename',
          given: wanted !== '' && wanted !== snapshot.name && wanted,
          fields: <TextField label="New name" value={wanted} onChange={setWanted} required placeholder={snapshot.name} />,
          plan: () => Promise.resolve({ would: [`It is called ${volume.name}@${wanted} from then on. Its data stays as it is, and so does its name at other sites that have it already.`] }),
          run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/rename', { params: { path }, body: { name: wanted } })),
        }}
      />
    );
  }
  if (name === 'hold') {
    const held = !snapshot.held;
    return (
      <ActionDialog
        onClose={onClose}
        action={{
          title: held ? `Hold ${full}` : `Let go of ${full}`,
          verb: held ? 'Hold' : 'Let go',
          plan: () => Promise.resolve({ would: [held ? 'It cannot be deleted until somebody lets go of it.' : 'It can be deleted again.'] }),
          run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/hold', { params: { path }, body: { held } })),
        }}
      />
    );
  }
  if (name === 'rollback') {
    return (
      <ActionDialog
        onClose={onClose}
        action={{
          title: `Roll ${volume.name} back to ${snapshot.name}`,
          verb: 'Roll back',
          typed: volume.name,
          plan: () => planned(api.POST('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/rollback', { params: dry })),
          run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}/rollback', { params: { path, header: confirming(full) } })),
        }}
      />
    );
  }
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Delete ${full}`,
        verb: 'Delete',
        typed: snapshot.name,
        plan: () => planned(api.DELETE('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}', { params: dry })),
        run: () => answered(api.DELETE('/api/v1/volumes/{pool}/{volume}/snapshots/{snapshot}', { params: { path, header: confirming(full) } })),
      }}
    />
  );
}
