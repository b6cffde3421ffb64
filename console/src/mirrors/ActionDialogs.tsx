import { Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, confirming, parts, planned, type Schemas, type TransferRecord } from '../api/client';
import { usePeers, useSnapshots, type SeenMirror } from '../api/queries';
import { SelectField, TextField } from '../forms/fields';
import { askedWhen, inWords, readWhen } from '../forms/when';
import { WhenFields } from '../forms/WhenFields';
import { ActionDialog } from '../plan/ActionDialog';
import { duration, readSize } from '../words/quantities';
import { BeginDrill } from './Drills';
import { peerOf, simpleAction, type ActionName } from './actions';

interface Shown {
  mirror: SeenMirror;
  history: TransferRecord[];
  onClose: () => void;
}

/** The dialog of an action of a mirror. */
export function MirrorAction({ name, ...shown }: Shown & { name: ActionName }) {
  if (name === 'break') return <Break {...shown} />;
  if (name === 'resync') return <Resync {...shown} />;
  if (name === 'set') return <Settings {...shown} />;
  if (name === 'drill') return <BeginDrill mirror={shown.mirror} onClose={shown.onClose} />;
  const action = simpleAction(name, shown.mirror, shown.history);
  return action && <ActionDialog action={action} onClose={shown.onClose} />;
}

function Break({ mirror, onClose }: Shown) {
  const snapshots = useSnapshots(mirror.name);
  const [at, setAt] = useState('');
  const path = parts(mirror.name);
  const body: Schemas['BreakMirror'] = at ? { at } : {};
  const points = (snapshots.data ?? []).filter((snapshot) => snapshot.on_main_line !== false);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Break ${mirror.name} off: take over here`,
        verb: 'Break',
        given: at,
        typed: mirror.name,
        fields: (
          <SelectField
            label="Point in time that hosts shall find"
            value={at}
            onChange={setAt}
            help="With an earlier one, what is newer stays as a side branch."
            options={[
              { value: '', label: 'The newest that was published' },
              ...points
                .toSorted((a, b) => b.created_at.localeCompare(a.created_at))
                .map((snapshot) => ({ value: snapshot.name, label: `${snapshot.name}, ${snapshot.created_at.slice(0, 19).replace('T', ' ')} UTC` })),
            ]}
          />
        ),
        plan: () => planned(api.POST('/api/v1/mirrors/{pool}/{volume}/break', { params: { path, query: { plan: true } }, body })),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/break', { params: { path }, body })),
        cost: ['Nothing on the link: the other site is not asked. The volume is writable within a second.'],
      }}
    />
  );
}

function Resync({ mirror, onClose }: Shown) {
  const overtaken = mirror.overtaken;
  const first = mirror.role === 'source' ? (overtaken?.beyond ?? mirror.destination) : '';
  const [from, setFrom] = useState(first);
  const [whole, setWhole] = useState(false);
  const path = parts(mirror.name);
  const body: Schemas['ResyncMirror'] = { ...(from && { from }), ...(whole && { whole }) };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Resync ${mirror.name}`,
        verb: 'Resync',
        given: `${from} ${whole}`,
        typed: mirror.name,
        fields: (
          <>
            <TextField
              label="Follow"
              value={from}
              onChange={setFrom}
              placeholder={mirror.source}
              help="PEER:POOL/VOL. Left empty: what it was broken off from."
            />
            <Checkbox
              id="whole"
              label="Compare everything if the two have no point in common"
              description="Without, that is refused. What is equal does not travel."
              isChecked={whole}
              onChange={(_, checked) => setWhole(checked)}
            />
          </>
        ),
        plan: () => planned(api.POST('/api/v1/mirrors/{pool}/{volume}/resync', { params: { path, query: { plan: true } }, body })),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/resync', { params: { path, header: confirming(mirror.name) }, body })),
        cost: ['Only what differs from the newest point that both sites hold travels. Comparing reads metadata, not data, where there is such a point.'],
      }}
    />
  );
}

function Settings({ mirror, onClose }: Shown) {
  const link = mirror.link;
  const was = {
    retention: mirror.retention ?? 'none',
    throttle: link?.throttle ?? 'unlimited',
    window: link?.window_bytes ? String(link.window_bytes) : '0',
    group: mirror.group ?? '',
    low: link?.low_priority ?? false,
    paths: (link?.paths ?? []).join(' '),
  };
  const began = readWhen(mirror.schedule);
  const [when, setWhen] = useState(began);
  const [retention, setRetention] = useState(was.retention);
  const [throttle, setThrottle] = useState(was.throttle);
  const [window, setWindow] = useState(was.window);
  const [group, setGroup] = useState(was.group);
  const [low, setLow] = useState(was.low);
  const [paths, setPaths] = useState(was.paths);
  const peers = usePeers();

  const wanted: Schemas['SetMirror'] = {};
  const would: string[] = [];
  const wrong: { time?: string; window?: string } = {};
  if (when.kind !== began.kind || when.time !== began.time || when.zone !== began.zone) {
    const asked = askedWhen(when);
    if (typeof asked === 'string') wrong.time = asked;
    else {
      Object.assign(wanted, asked);
      if (when.kind === 'rpo') would.push(`Updates begin so that the replica is never older than ${duration(asked.rpo_seconds)}.`);
      else would.push(when.kind === 'asked' ? 'Updates begin only when somebody asks.' : `Updates begin ${inWords(asked)}.`);
    }
  }
  if (retention !== was.retention) [wanted.retention] = [retention, would.push(`Published points stay by ${retention}. What it names no more goes.`)];
  if (group !== was.group) [wanted.group] = [group, would.push(group ? `It is updated and broken off with the group ${group}.` : 'It leaves its group.')];
  const linked: Schemas['SetMirrorLink'] = {};
  if (throttle !== was.throttle) [linked.throttle] = [throttle, would.push(`Its limit on the link is ${throttle}.`)];
  if (low !== was.low) [linked.low_priority] = [low, would.push(low ? 'It gives way to other traffic.' : 'It does not give way to other traffic.')];
  const named = paths.split(/[\s,]+/).filter(Boolean);
  if (named.join(' ') !== was.paths) [linked.paths] = [named, would.push(named.length > 0 ? `From the next transfer on it takes ${named.join(' and ')}.` : `From the next transfer on it takes the paths of ${peerOf(mirror)}.`)];
  if (window !== was.window) {
    const read = readSize(window);
    if (typeof read === 'string') wrong.window = read;
    else [linked.window_bytes] = [read, would.push(read ? `At most ${window} are on their way unacknowledged.` : 'As much is on its way as the path needs.')];
  }
  if (Object.keys(linked).length > 0) wanted.link = linked;
  const isRight = !wrong.time && !wrong.window && would.length > 0;
  const usual = peers.data?.find(({ name }) => name === peerOf(mirror))?.address;

  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Settings of ${mirror.name}`,
        verb: 'Change',
        given: isRight && JSON.stringify(wanted),
        plan: () => Promise.resolve({ would }),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/set', { params: { path: parts(mirror.name) }, body: wanted })),
        fields: (
          <>
            <WhenFields label="Updates begin" kinds={['rpo', 'every', 'cron', 'asked']} when={when} onChange={setWhen} wrong={wrong.time} />
            <TextField label="Points that stay" value={retention} onChange={setRetention} help="last=10,hourly=24,daily=7, or none" />
            <TextField label="Limit" value={throttle} onChange={setThrottle} help="4MB/s, with times 4MB/s,08:00-18:00=1MB/s, or unlimited" />
            <TextField label="Window" value={window} onChange={setWindow} wrong={wrong.window} help="16M; 0: as much as the path needs" />
            <TextField label="Paths" value={paths} onChange={setPaths} placeholder={usual ? `LOCAL=${usual}` : undefined} help={`LOCAL=HOST:PORT, several with a space between them; empty: those of ${peerOf(mirror)}`} />
            <TextField label="Group" value={group} onChange={setGroup} help="Mirrors of a group show one moment of their source." />
            <Checkbox id="low" label="Give way to other traffic" isChecked={low} onChange={(_, checked) => setLow(checked)} />
          </>
        ),
      }}
    />
  );
}
