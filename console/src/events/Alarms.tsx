import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, type Alarm, type Schemas } from '../api/client';
import { useAllAlarms } from '../api/queries';
import { useMay } from '../api/session';
import { ActionDialog } from '../plan/ActionDialog';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { sentence } from '../words/sentence';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { Waiting } from './Waiting';

function Subject({ alarm }: { alarm: Alarm }) {
  if (alarm.subject.includes('/')) return <Link to={`/mirrors/${alarm.subject}`}>{alarm.subject}</Link>;
  if (alarm.kind.startsWith('peer')) return <Link to={`/peers/${alarm.subject}`}>{alarm.subject}</Link>;
  if (alarm.kind.startsWith('pool')) return <Link to={`/pools/${alarm.subject}`}>{alarm.subject}</Link>;
  return <>{alarm.subject}</>;
}

/** What came of a test alarm, way by way. */
function Tested({ ways }: { ways: Schemas['AlarmTest'][] }) {
  return (
    <>
      <ul className="needs">
        {ways.map((way) => (
          <li key={`${way.way} ${way.target ?? ''}`}>
            <Status tone={way.ok ? 'proven' : 'danger'}>{way.ok ? 'It arrived' : 'It did not arrive'}</Status> {way.way}
            {way.target && `, ${way.target}`}
            <p>{sentence(way.result)}</p>
          </li>
        ))}
      </ul>
      {ways.every((way) => way.way === 'log') && <p className="quiet">Alarms reach nobody but the log here. A webhook or a command of [alarms] in farside.toml tells somebody.</p>}
    </>
  );
}

export default function Alarms() {
  const alarms = useAllAlarms();
  const may = useMay();
  const [known, setKnown] = useState<Alarm | null>(null);
  const [testing, setTesting] = useState(false);
  const columns: Column<Alarm>[] = [
    {
      title: 'Alarm',
      width: 17,
      value: (alarm) => `${alarm.cleared_at ? 1 : 0} ${alarm.severity} ${alarm.kind}`,
      cell: (alarm) => (
        <Status tone={alarm.cleared_at ? 'neutral' : alarm.severity === 'critical' ? 'danger' : 'warning'}>{alarm.kind}</Status>
      ),
    },
    { title: 'About', width: 15, value: (alarm) => alarm.subject, cell: (alarm) => <Subject alarm={alarm} /> },
    {
      title: 'What is wrong, and what to do',
      width: 38,
      value: (alarm) => alarm.message,
      cell: (alarm) => (
        <>
          {sentence(alarm.message)}
          <div className="quiet">{sentence(alarm.hint)}</div>
        </>
      ),
    },
    { title: 'Began', width: 12, value: (alarm) => alarm.raised_at, cell: (alarm) => <Ago at={alarm.raised_at} /> },
    {
      title: 'Now',
      width: 18,
      value: (alarm) => alarm.cleared_at ?? '',
      cell: (alarm) =>
        alarm.cleared_at ? (
          <>
            over <Ago at={alarm.cleared_at} />
          </>
        ) : alarm.acknowledged ? (
          'known'
        ) : may('operator') ? (
          <Button size="sm" variant="secondary" onClick={() => setKnown(alarm)}>
            It is known
          </Button>
        ) : (
          'nobody has looked'
        ),
    },
  ];
  return (
    <PageFrame
      title="Alarms"
      actions={
        may('operator') && (
          <Button variant="secondary" onClick={() => setTesting(true)}>
            Send a test alarm
          </Button>
        )
      }
    >
      <Waiting />
      <Panel title="Alarms, open ones first">
        <Loaded query={alarms} lines={6}>
          {(all) => <DataTable label="Alarms" rows={all} columns={columns} rowKey={(alarm) => alarm.id} empty="There has been no alarm." />}
        </Loaded>
      </Panel>
      {known && (
        <ActionDialog
          onClose={() => setKnown(null)}
          action={{
            title: `Alarm ${known.kind} of ${known.subject}`,
            verb: 'It is known',
            plan: () => Promise.resolve({ would: ['It is no longer counted among what needs a person. It ends when its reason is gone.'] }),
            run: () => answered(api.POST('/api/v1/alarms/{id}/ack', { params: { path: { id: known.id } } })),
          }}
        />
      )}
      {testing && (
        <ActionDialog
          onClose={() => setTesting(false)}
          action={{
            title: 'Send a test alarm',
            verb: 'Send it',
            plan: () =>
              Promise.resolve({
                would: ['An alarm that says it is a test goes every way that real ones go: to the log, and to the webhook and the command of [alarms] in farside.toml, if they are there.', 'It is tried once on each. Nothing is raised.'],
              }),
            run: () => answered(api.POST('/api/v1/alarms/test')),
            done: (answer) => <Tested ways={answer as Schemas['AlarmTest'][]} />,
          }}
        />
      )}
    </PageFrame>
  );
}
