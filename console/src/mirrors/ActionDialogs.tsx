import { Checkbox } from '@patternfly/react-core';
import { useQueries } from '@tanstack/react-query';
import { useState } from 'react';
import { answered, api, confirming, Failure, parts, planned, type Plan, type Schemas, type TransferRecord } from '../api/client';
import { useMirrors, usePeers, useSnapshots, type SeenMirror } from '../api/queries';
import { More, SelectField, TextField } from '../forms/fields';
import { askedWhen, inWords, readWhen, type When } from '../forms/when';
import { WhenFields } from '../forms/WhenFields';
import { ActionDialog } from '../plan/ActionDialog';
import { duration, readSize } from '../words/quantities';
import { BeginDrill } from './Drills';
import { groupOf, instants, left, together, type Member } from './group';
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

const utc = (at: string) => `${at.slice(0, 19).replace('T', ' ')} UTC`;

function Break({ mirror, onClose }: Shown) {
  const members = groupOf(mirror, useMirrors().data ?? []);
  const [alone, setAlone] = useState(members.length === 0);
  const choice = members.length > 0 && (
    <Checkbox
      id="group"
      label={`All ${members.length} mirrors of the group ${mirror.group}, as of one moment`}
      description={`${members.map(({ name }) => name).join(', ')}. Without, only ${mirror.name}.`}
      isChecked={!alone}
      onChange={(_, all) => setAlone(!all)}
    />
  );
  return alone || members.length === 0 ? <BreakOne mirror={mirror} choice={choice} onClose={onClose} /> : <BreakGroup mirrors={members} group={mirror.group!} choice={choice} onClose={onClose} />;
}

function BreakOne({ mirror, choice, onClose }: { mirror: SeenMirror; choice: React.ReactNode; onClose: () => void }) {
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
          <>
            {choice}
            <SelectField
              label="Point in time that hosts shall find"
              value={at}
              onChange={setAt}
              help="With an earlier one, what is newer stays as a side branch."
              options={[
                { value: '', label: 'The newest that was published' },
                ...points.toSorted((a, b) => b.created_at.localeCompare(a.created_at)).map((snapshot) => ({ value: snapshot.name, label: `${snapshot.name}, ${utc(snapshot.created_at)}` })),
              ]}
            />
          </>
        ),
        plan: () => planned(api.POST('/api/v1/mirrors/{pool}/{volume}/break', { params: { path, query: { plan: true } }, body })),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/break', { params: { path }, body })),
        cost: ['Nothing on the link: the other site is not asked. The volume is writable within a second.'],
      }}
    />
  );
}

/** All mirrors of a group, at a moment that each of them has: a database and its log belong together. */
function BreakGroup({ mirrors, group, choice, onClose }: { mirrors: SeenMirror[]; group: string; choice: React.ReactNode; onClose: () => void }) {
  const [at, setAt] = useState('');
  const read = useQueries({
    queries: mirrors.map(({ name }) => ({ queryKey: ['snapshots', name], queryFn: () => answered(api.GET('/api/v1/volumes/{pool}/{volume}/snapshots', { params: { path: parts(name) } })) })),
  });
  const isRead = read.every(({ data }) => data !== undefined);
  const members: Member[] = mirrors.map((mirror, index) => ({ mirror, snapshots: read[index]?.data ?? [] }));
  const found = isRead ? instants(members) : [];
  const moments = typeof found === 'string' ? [] : found;
  const chosen = moments.find((instant) => instant.at === at) ?? moments[0];
  const steps = chosen ? left(members).map((member) => ({ name: member.mirror.name, body: { at: chosen.names[members.indexOf(member)]! } })) : [];
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Break the group ${group} off: take over here`,
        verb: 'Break all',
        given: steps.length > 0 && JSON.stringify(steps),
        typed: group,
        fields: (
          <>
            {choice}
            {typeof found === 'string' && <p>{found}</p>}
            <SelectField
              label="Moment that hosts shall find"
              value={chosen?.at ?? ''}
              onChange={setAt}
              help="One that all of them have. What is newer stays as a side branch of each."
              options={moments.map((instant, index) => ({ value: instant.at, label: `${utc(instant.at)}${index === 0 ? ', the newest' : ''}, ${instant.names[0]}` }))}
            />
          </>
        ),
        plan: async () => {
          const plans: [string, Plan][] = [];
          for (const { name, body } of steps) {
            plans.push([name, await planned(api.POST('/api/v1/mirrors/{pool}/{volume}/break', { params: { path: parts(name), query: { plan: true } }, body }))]);
          }
          return together(`break group ${group}`, `${steps.length} mirrors are broken off, all as of ${utc(chosen!.at)}`, plans);
        },
        run: async () => {
          for (const [done, { name, body }] of steps.entries()) {
            try {
              await answered(api.POST('/api/v1/mirrors/{pool}/{volume}/break', { params: { path: parts(name) }, body }));
            } catch (error) {
              if (!(error instanceof Failure) || done === 0) throw error;
              throw new Failure(error.code, `${done} of ${steps.length} are broken off; ${name} is not: ${error.message}`, 'The same again goes on with the others, at the same moment.');
            }
          }
        },
        cost: ['Nothing on the link: the other site is not asked. The volumes are writable within seconds.'],
      }}
    />
  );
}

function Resync({ mirror, onClose }: Shown) {
  const overtaken = mirror.overtaken;
  const first = mirror.role === 'source' ? (overtaken?.beyond ?? mirror.destination) : '';
  const [from, setFrom] = useState(first);
  const [whole, setWhole] = useState(false);
  const [isNew, setNew] = useState(false);
  const [when, setWhen] = useState<When>({ kind: 'every', time: '1m', zone: '' });
  const asked = askedWhen(when);
  const path = parts(mirror.name);
  const body: Schemas['ResyncMirror'] = { ...(from && { from }), ...(whole && { whole }), ...(isNew && typeof asked !== 'string' && asked) };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Resync ${mirror.name}`,
        verb: 'Resync',
        given: !(isNew && typeof asked === 'string') && JSON.stringify(body),
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
            <Checkbox
              id="new-schedule"
              label="Another schedule from then on"
              description={mirror.role === 'source' ? 'Without, updates begin only when asked for, until Settings say more: enough if the roles are swapped soon.' : 'Without, as it was.'}
              isChecked={isNew}
              onChange={(_, checked) => setNew(checked)}
            />
            {isNew && <WhenFields label="Updates begin" kinds={['every', 'cron', 'asked']} when={when} onChange={setWhen} wrong={typeof asked === 'string' ? asked : null} />}
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
            <TextField label="Group" value={group} onChange={setGroup} help="Mirrors of a group show one moment of their source." />
            <More label="Use of the link" isOpen={was.throttle !== 'unlimited' || was.window !== '0' || was.paths !== '' || was.low}>
              <TextField label="Limit" value={throttle} onChange={setThrottle} help="4MB/s, with times 4MB/s,08:00-18:00=1MB/s, or unlimited" />
              <TextField label="Window" value={window} onChange={setWindow} wrong={wrong.window} help="16M; 0: as much as the path needs" />
              <TextField label="Paths" value={paths} onChange={setPaths} placeholder={usual ? `LOCAL=${usual}` : undefined} help={`LOCAL=HOST:PORT, several with a space between them; empty: those of ${peerOf(mirror)}`} />
              <Checkbox id="low" label="Give way to other traffic" isChecked={low} onChange={(_, checked) => setLow(checked)} />
            </More>
          </>
        ),
      }}
    />
  );
}
