import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useParams } from 'react-router-dom';
import { useDestinations, useHistory, useLog, useMirrors, useSnapshots, type SeenMirror } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { Bar } from '../words/Bar';
import { Facts } from '../words/Facts';
import { KINDS } from '../words/kinds';
import { age, duration, rate, size } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { MirrorAction } from './ActionDialogs';
import { HINTS, LABELS, NEEDS, peerOf, possible, type ActionName } from './actions';
import { Drills } from './Drills';
import { Kinds } from './Kinds';
import { Log } from './Log';
import { mirrorKey } from './MirrorTable';
import { BothSides } from './BothSides';
import { Timeline } from './Timeline';
import { Lag, useJudge } from './VerdictLabel';

/** What brings a mirror to where it should be. */
const GOES: SeenMirror['state'][] = ['mirrored', 'transferring', 'queued'];
const GOES_ON: ActionName[] = ['initialize', 'update', 'resume', 'resync'];

export default function MirrorPage() {
  const { pool, volume } = useParams();
  const name = `${pool}/${volume}`;
  const mirrors = useMirrors();
  const here = mirrors.data?.filter((mirror) => mirror.name === name) ?? [];
  return (
    <PageFrame title={name} above={<Link to="/mirrors">Mirrors</Link>}>
      <Loaded query={mirrors}>
        {() =>
          here.length === 0 ? (
            <p>
              {name} has no mirror at this site. <Link to={`/volumes/${name}`}>The volume</Link>
            </p>
          ) : (
            here
              .toSorted((a, b) => a.role.localeCompare(b.role))
              .map((mirror) => <OneMirror key={mirrorKey(mirror)} mirror={mirror} />)
          )
        }
      </Loaded>
    </PageFrame>
  );
}

function OneMirror({ mirror }: { mirror: SeenMirror }) {
  const isReplica = mirror.role === 'destination';
  return (
    <>
      <State mirror={mirror} />
      {isReplica && <Drills replica={mirror.name} />}
      {isReplica && <Transfers mirror={mirror} />}
      <Sides mirror={mirror} />
      {isReplica && <LogPanel name={mirror.name} />}
    </>
  );
}

function State({ mirror }: { mirror: SeenMirror }) {
  const { tone, word, why } = useJudge()(mirror);
  const history = useHistory(mirror.role === 'destination' ? mirror.name : undefined);
  const may = useMay();
  const [action, setAction] = useState<ActionName | null>(null);
  const actions = possible(mirror).filter((name) => may(NEEDS[name]));
  const transfer = mirror.transfer;
  return (
    <Panel
      title={mirror.role === 'destination' ? `Replica of ${mirror.source}` : `Original of ${mirror.destination}`}
      actions={
        <span className="button-row">
          {actions.map((name) => (
            <Button
              key={name}
              size="sm"
              variant={name === 'delete' || name === 'release' ? 'danger' : GOES_ON.includes(name) ? 'primary' : 'secondary'}
              title={HINTS[name]}
              onClick={() => setAction(name)}
            >
              {LABELS[name]}
            </Button>
          ))}
        </span>
      }
    >
      <p className="verdict">
        <Status tone={tone}>{word}</Status>
      </p>
      <p>{why}</p>
      {mirror.overtaken && !mirror.overtaken.follows && (
        <ul className="bullets">
          <li>
            If what is at {mirror.overtaken.beyond ?? mirror.destination} counts: <em>Resync</em>. This volume follows it, and what was written only here stays as a side branch. <em>Swap roles</em> makes this site the original again afterwards.
          </li>
          <li>
            If this one counts, or both are to be kept: <em>Release</em>.
          </li>
        </ul>
      )}
      {transfer && (
        <Bar
          part={transfer.done_bytes}
          whole={transfer.changed_bytes ?? 0}
          tone="busy"
          label={[
            `${KINDS[transfer.kind]}, ${transfer.phase}${transfer.changed_bytes ? `: ${size(transfer.done_bytes)} of ${size(transfer.changed_bytes)}` : ''}`,
            transfer.wire_bytes > 0 && `${size(transfer.wire_bytes)} on the wire`,
            transfer.rate_bytes_per_second ? rate(transfer.rate_bytes_per_second) : null,
            transfer.eta_seconds ? `${duration(transfer.eta_seconds)} to go` : null,
          ]
            .filter(Boolean)
            .join(', ')}
        />
      )}
      <Facts
        facts={[
          ['State', mirror.queue_position ? `${mirror.state}, place ${mirror.queue_position} in the queue` : mirror.state],
          ['Lag', mirror.role === 'destination' ? <Lag key="lag" mirror={mirror} /> : null],
          ['Objective', mirror.objective_seconds ? age(mirror.objective_seconds) : null],
          [
            'Forecast',
            mirror.forecast_seconds
              ? `${duration(mirror.forecast_seconds)} old at most, by what updates took of late`
              : mirror.objective_seconds && mirror.role === 'destination' && GOES.includes(mirror.state)
                ? mirror.why
                  ? 'none: see above'
                  : 'not known before more updates have ended'
                : null,
          ],
          ['Updates', mirror.schedule ?? (mirror.role === 'destination' ? 'only when asked for' : null)],
          ['Points that stay', mirror.retention],
          ['Group', mirror.group],
          ['Peer', <Link key="peer" to={`/peers/${peerOf(mirror)}`}>{peerOf(mirror)}</Link>],
          ['Volume', <Link key="volume" to={`/volumes/${mirror.name}`}>{mirror.name}</Link>],
          ['Limit now', mirror.throttle ? rate(mirror.throttle) : null],
          ['Limit as set', mirror.link?.throttle],
          ['Paths', mirror.link?.paths.length ? mirror.link.paths.join(', ') : null],
          ['Gives way', mirror.link?.low_priority ? 'to other traffic on the path' : null],
          ['Newest point', mirror.current_snapshot],
          ['Content root', mirror.content_root && <code key="root">{mirror.content_root}</code>],
          ['Whole replica compared', mirror.last_proven_at && <Ago key="proven" at={mirror.last_proven_at} />],
          ['The source has heard', mirror.state === 'broken-off' ? (mirror.source_heard ?? null) : null],
          ['Broken off since', mirror.overtaken && <Ago key="since" at={mirror.overtaken.since} />],
          ['Changed here since', mirror.overtaken?.diverged_bytes ? size(mirror.overtaken.diverged_bytes) : null],
        ]}
      />
      {action && <MirrorAction name={action} mirror={mirror} history={history.data ?? []} onClose={() => setAction(null)} />}
    </Panel>
  );
}

function Transfers({ mirror }: { mirror: SeenMirror }) {
  const history = useHistory(mirror.name);
  return (
    <>
      <Panel title="Timeline of transfers">
        <Loaded query={history} lines={6}>{(records) => <Timeline records={records} />}</Loaded>
      </Panel>
      <Panel title="Bytes by kind">
        <Loaded query={history}>{(records) => <Kinds records={records} />}</Loaded>
      </Panel>
    </>
  );
}

function Sides({ mirror }: { mirror: SeenMirror }) {
  const snapshots = useSnapshots(mirror.name);
  const destinations = useDestinations();
  return (
    <Panel title="Snapshots">
      <Loaded query={snapshots}>
        {(list) => (
          <BothSides
            mirror={mirror}
            snapshots={list}
            destination={destinations.data?.find((each) => each.id === mirror.id) ?? null}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function LogPanel({ name }: { name: string }) {
  const log = useLog(name);
  return (
    <Panel title="Log">
      <Loaded query={log}>{(lines) => <Log lines={lines} />}</Loaded>
    </Panel>
  );
}
