import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { useSite } from '../api/queries';
import { useMay } from '../api/session';
import { useAsk } from '../forms/useAsk';
import { Panel } from '../shell/PageFrame';
import { Facts } from '../words/Facts';
import { FailureNote } from '../words/FailureNote';
import { save } from '../words/save';
import { sentence } from '../words/sentence';
import { Ago } from '../words/Time';

type Read = Schemas['Support'];

/** Lines of the log that are shown; all that there are can be saved. */
const SHOWN = 200;

/** What the daemon is, what it runs with, and its log: for whoever looks for a mistake. */
export function Support() {
  const site = useSite().data;
  const may = useMay();
  const [read, setRead] = useState<Read | null>(null);
  const { ask, asking, failure } = useAsk();
  const look = () => ask(() => answered(api.GET('/api/v1/support'))).then((said) => said && setRead(said));
  return (
    <Panel
      title="The daemon"
      actions={
        may('operator') && (
          <span className="button-row">
            <Button size="sm" variant="secondary" isLoading={asking} isDisabled={asking} onClick={() => void look()}>
              {read ? 'Read its log again' : 'Read its log'}
            </Button>
            {read && (
              <Button size="sm" variant="secondary" onClick={() => save(`farside-${site?.name ?? 'site'}-${read.now.slice(0, 19).replaceAll(':', '')}.json`, JSON.stringify(read, null, 2), 'application/json')}>
                Save it for whoever helps
              </Button>
            )}
          </span>
        )
      }
    >
      {site && (
        <Facts
          facts={[
            ['Version', site.version],
            ['Site', site.name],
            ['Identity', <code key="id">{site.id}</code>],
            ['Data directory', <code key="dir">{site.data_dir}</code>],
            ['Peers meet it at', site.peer_address ?? 'nowhere: --peer-listen off'],
            ['Hosts meet it at', site.nbd_address ?? 'its own machine only: --nbd-listen off'],
            ['Console and API', site.api_address],
            ['Certificate, SHA-256', site.api_fingerprint && <code key="fingerprint">{site.api_fingerprint}</code>],
            ['Metrics', site.http_address ?? 'off: --http off'],
            ['Started', read && <Ago key="started" at={read.started_at} />],
          ]}
        />
      )}
      <FailureNote error={failure} />
      {read && (
        <>
          {(read.network_advice ?? []).length > 0 && (
            <>
              <h3>Its network could be faster</h3>
              <ul className="bullets">
                {read.network_advice!.map((advice) => (
                  <li key={advice}>{sentence(advice)}</li>
                ))}
              </ul>
            </>
          )}
          <h3>The newest lines of its log</h3>
          <pre className="rules" tabIndex={0} aria-label="Log of the daemon">
            {read.log.slice(-SHOWN).join('\n')}
          </pre>
          <p className="quiet">
            {read.log.length > SHOWN && `${read.log.length} lines are kept, and saved. `}No keys, codes or data are in it. More is in what <code>farside support-bundle</code> packs.
          </p>
        </>
      )}
    </Panel>
  );
}
