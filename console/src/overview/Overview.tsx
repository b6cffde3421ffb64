import { lazy, Suspense, useMemo } from 'react';
import { Link } from 'react-router-dom';
import { useLostSince } from '../api/heard';
import { useAlarms, useHistory, useMirrors, useSiteStatus } from '../api/queries';
import { useMay } from '../api/session';
import { MirrorTable, useCounts } from '../mirrors/MirrorTable';
import { overTime, savings } from '../mirrors/savings';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { Facts } from '../words/Facts';
import { count, percent, rate, size } from '../words/quantities';
import { NeedsPerson } from './NeedsPerson';

const Plot = lazy(() => import('../charts/Plot'));

export function Overview() {
  const mirrors = useMirrors();
  const alarms = useAlarms();
  const status = useSiteStatus();
  const history = useHistory();
  const may = useMay();
  return (
    <PageFrame
      title="Overview"
      actions={
        may('operator') && (
          <Link className="button-link" to="/create">
            Protect a volume
          </Link>
        )
      }
    >
      <Counts mirrors={mirrors.data} />
      <div className="two-columns">
        <Panel title="Needs a person">
          <Loaded query={status}>
            {(site) => <NeedsPerson site={site} mirrors={mirrors.data ?? []} alarms={alarms.data ?? []} />}
          </Loaded>
        </Panel>
        <Panel title="Savings on the link">
          <Loaded query={history} lines={6}>
            {(records) => <SavingsPlot records={records} />}
          </Loaded>
        </Panel>
      </div>
      <Panel title="Lag of every mirror against its objective">
        <Loaded query={mirrors} lines={8}>
          {(all) => <MirrorTable label="Mirrors, those that need a person first" mirrors={all} />}
        </Loaded>
      </Panel>
      <Panel title="The site’s transfers">
        <Loaded query={status}>
          {(site) => (
            <Facts
              facts={[
                ['Under way', `${site.transfers_under_way} of ${site.transfer_size} at once`],
                ['Waiting for their turn', count(site.transfers_waiting)],
                ['Sent, received', `${size(site.sent_bytes)}, ${size(site.received_bytes)} since the daemon started`],
                ['Limit out', site.throttle_out.bytes_per_second ? rate(site.throttle_out.bytes_per_second) : 'none'],
                ['Limit in', site.throttle_in.bytes_per_second ? rate(site.throttle_in.bytes_per_second) : 'none'],
                [
                  'Held back for hosts',
                  site.held_back && `transfers use ${site.held_back.share_percent} % of a processor at most, since hosts became slower`,
                ],
              ]}
            />
          )}
        </Loaded>
      </Panel>
    </PageFrame>
  );
}

function Counts({ mirrors }: { mirrors: ReturnType<typeof useMirrors>['data'] }) {
  const lost = useLostSince() !== null;
  const counts = useCounts(mirrors, lost);
  const tiles = [
    ['danger', 'late or overtaken'],
    ['warning', 'need a look'],
    ['busy', 'first copy under way'],
    ['neutral', 'without a verdict'],
    ['proven', 'within objective, proven'],
  ] as const;
  return (
    <ul className="tiles" aria-label="Mirrors by how they are">
      {tiles.map(([tone, words]) => (
        <li key={tone}>
          <Link to={`/mirrors?show=${tone}`} className={`tile tile-${counts[tone] > 0 ? tone : 'none'}`}>
            <span className="tile-count">{mirrors ? count(counts[tone]) : '–'}</span>
            <span>{words}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

function SavingsPlot({ records }: { records: NonNullable<ReturnType<typeof useHistory>['data']> }) {
  const sum = savings(records);
  const data = useMemo(() => overTime(records), [records]);
  if (records.length === 0) return <p className="quiet">No transfer has ended yet. What they save is shown here.</p>;
  const sentence =
    sum.brought > 0
      ? `The last ${sum.transfers === 1 ? 'transfer' : `${count(sum.transfers)} transfers`} brought ${size(sum.brought)} of changed data by ${size(sum.wire)} on the wire` +
        (sum.wire < sum.brought ? `: ${percent(sum.brought - sum.wire, sum.brought)} saved.` : '.')
      : `The last ${sum.transfers === 1 ? 'transfer' : `${count(sum.transfers)} transfers`} found nothing changed, and took ${size(sum.wire)} on the wire.`;
  return (
    <>
      <p>{sentence}</p>
      {data[0].length > 1 && (
        <Suspense fallback={<div className="plot-room" />}>
          <Plot
            data={data}
            value={size}
            sentence={sentence}
            lines={[
              { label: 'Changed data', colour: '--plot-brought', fill: true },
              { label: 'On the wire', colour: '--plot-wire', fill: true },
            ]}
          />
        </Suspense>
      )}
    </>
  );
}
