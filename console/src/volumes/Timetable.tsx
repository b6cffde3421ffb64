import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, parts, type Schemas, type Volume } from '../api/client';
import { useTimetables } from '../api/queries';
import { useMay } from '../api/session';
import { TextField } from '../forms/fields';
import { askedWhen, inWords, readWhen } from '../forms/when';
import { WhenFields } from '../forms/WhenFields';
import { ActionDialog } from '../plan/ActionDialog';
import { Loaded, Panel } from '../shell/PageFrame';
import { Facts } from '../words/Facts';
import { count } from '../words/quantities';
import { sentence } from '../words/sentence';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';

type Schedule = Schemas['SnapshotSchedule'];

/** Snapshots that a volume gets by itself, and which of them stay. */
export function Timetable({ volume }: { volume: Volume }) {
  const timetables = useTimetables();
  const may = useMay();
  const [asked, setAsked] = useState<'set' | 'end' | null>(null);
  const own = timetables.data?.find((each) => each.volume === volume.name);
  const along = own ? undefined : timetables.data?.find((each) => each.others?.includes(volume.name));
  return (
    <Panel
      title="Snapshots by themselves"
      actions={
        may('administrator') &&
        timetables.data && (
          <span className="button-row">
            <Button size="sm" variant="secondary" onClick={() => setAsked('set')}>
              {own ? 'Change the timetable' : 'Set a timetable'}
            </Button>
            {own && (
              <Button size="sm" variant="secondary" onClick={() => setAsked('end')}>
                End the timetable
              </Button>
            )}
          </span>
        )
      }
    >
      <Loaded query={timetables}>
        {() =>
          own ? (
            <>
              {own.why && (
                <p>
                  <Status tone="warning">The last time:</Status> {sentence(own.why)}
                </p>
              )}
              <Facts
                facts={[
                  ['They are taken', own.schedule],
                  ['Of them stay', own.retention],
                  ['There are now', own.points === null || own.points === undefined ? null : count(own.points)],
                  ['The last one', own.last_at ? <Ago key="last" at={own.last_at} /> : 'none yet'],
                  ['Its name', own.last_snapshot],
                  ['Hook that freezes', own.hook],
                  ['In the same instant', own.others?.join(', ')],
                ]}
              />
            </>
          ) : along ? (
            <p>
              They are taken with those of <Link to={`/volumes/${along.volume}`}>{along.volume}</Link>: {along.schedule}; {along.retention} stay.
            </p>
          ) : (
            <p className="quiet">No timetable takes snapshots of it.{volume.replica && ' A replica gets those of its original.'}</p>
          )
        }
      </Loaded>
      {asked === 'set' && <SetTimetable volume={volume} was={own} onClose={() => setAsked(null)} />}
      {asked === 'end' && (
        <ActionDialog
          onClose={() => setAsked(null)}
          action={{
            title: `End the timetable of ${volume.name}`,
            verb: 'End it',
            plan: () => Promise.resolve({ would: ['No more snapshots are taken by themselves.', 'Those that it took stay until somebody deletes them.'] }),
            run: () => answered(api.DELETE('/api/v1/volumes/{pool}/{volume}/snapshot-schedule', { params: { path: parts(volume.name) } })),
          }}
        />
      )}
    </Panel>
  );
}

function SetTimetable({ volume, was, onClose }: { volume: Volume; was: Schedule | undefined; onClose: () => void }) {
  const began = was ? readWhen(was.schedule) : { kind: 'every' as const, time: '1h', zone: '' };
  const [when, setWhen] = useState(began);
  const [retention, setRetention] = useState(was?.retention ?? 'hourly=24,daily=7');
  const [hook, setHook] = useState(was?.hook ?? '');
  const [others, setOthers] = useState(was?.others?.join(' ') ?? '');

  // Only what is changed is asked for: of what is let go by another rule the site may say that it has to wait.
  const body: Schemas['SetSnapshotSchedule'] = {};
  const would: string[] = [];
  const asked = askedWhen(when);
  if (typeof asked !== 'string' && (!was || when.kind !== began.kind || when.time !== began.time || when.zone !== began.zone)) {
    Object.assign(body, asked);
    would.push(`A snapshot is taken ${inWords(asked)}.`);
  }
  if (!was || retention !== was.retention) {
    body.retention = retention;
    would.push(`Of what it takes stays ${retention}. What that names no more goes, but never what is held.`);
  }
  if (hook !== (was?.hook ?? '')) {
    body.hook = hook;
    would.push(hook ? `The hook ${hook} freezes the application for the moment of the snapshot.` : 'No application is frozen for it.');
  }
  if (others !== (was?.others?.join(' ') ?? '')) {
    body.others = others.split(/[\s,]+/).filter(Boolean);
    would.push(body.others.length > 0 ? `In the same instant ${body.others.join(', ')} get one, too.` : 'Only this volume gets one.');
  }
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Timetable of ${volume.name}`,
        verb: 'Set',
        given: typeof asked !== 'string' && retention !== '' && would.length > 0 && JSON.stringify(body),
        fields: (
          <>
            <WhenFields label="Snapshots are taken" kinds={['every', 'cron']} when={when} onChange={setWhen} wrong={typeof asked === 'string' ? asked : null} />
            <TextField label="Of them stay" value={retention} onChange={setRetention} required help="last=10,hourly=24,daily=7,weekly=4,monthly=12" />
            <TextField label="Hook" value={hook} onChange={setHook} help="A name of farside.toml: it freezes an application. Empty: none" />
            <TextField label="Together with" value={others} onChange={setOthers} placeholder={`${parts(volume.name).pool}/log`} help="Volumes of the same pool, of the same instant" />
          </>
        ),
        plan: () => Promise.resolve({ would }),
        cost: was ? [] : ['Space: what hosts replace between two snapshots that stay. They travel to the replicas, too.'],
        run: () => answered(api.POST('/api/v1/volumes/{pool}/{volume}/snapshot-schedule', { params: { path: parts(volume.name) }, body })),
      }}
    />
  );
}
