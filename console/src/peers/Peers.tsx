import { Button } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import type { Peer } from '../api/client';
import { useAccelerator, usePeers, useSiteStatus } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Facts } from '../words/Facts';
import { milliseconds, size } from '../words/quantities';
import { Status } from '../words/Status';
import { Hours } from './Hours';
import { Invite, Join } from './PeerDialogs';
import { PRECEDENCE, SiteLimits } from './SiteLimits';

export function PeerState({ peer }: { peer: Peer }) {
  const tone = peer.state === 'connected' ? (peer.why ? 'warning' : 'proven') : 'danger';
  return (
    <Status tone={tone} title={peer.why ?? undefined}>
      {peer.state}
    </Status>
  );
}

const COLUMNS: Column<Peer>[] = [
  { title: 'Peer', width: 18, value: (peer) => peer.name, cell: (peer) => <Link to={`/peers/${peer.name}`}>{peer.name}</Link> },
  { title: 'Session', width: 18, value: (peer) => peer.state, cell: (peer) => <PeerState peer={peer} /> },
  { title: 'Address', width: 22, value: (peer) => peer.address, cell: (peer) => peer.address ?? 'it dials this site' },
  { title: 'RTT', width: 12, right: true, value: (peer) => peer.rtt_seconds, cell: (peer) => milliseconds(peer.rtt_seconds) },
  { title: 'Sent', width: 15, right: true, value: (peer) => peer.sent_bytes, cell: (peer) => size(peer.sent_bytes) },
  { title: 'Received', width: 15, right: true, value: (peer) => peer.received_bytes, cell: (peer) => size(peer.received_bytes) },
];

export default function Peers() {
  const peers = usePeers();
  const status = useSiteStatus();
  const accelerator = useAccelerator();
  const may = useMay();
  const [asked, setAsked] = useState<'invite' | 'join' | 'limits' | null>(null);
  return (
    <PageFrame
      title="Peers and paths"
      actions={
        may('administrator') && (
          <span className="button-row">
            <Button variant="secondary" onClick={() => setAsked('invite')}>
              Invite a site
            </Button>
            <Button onClick={() => setAsked('join')}>Join a site</Button>
          </span>
        )
      }
    >
      <Panel title="Peers">
        <Loaded query={peers}>
          {(all) => (
            <DataTable label="Peers" rows={all} columns={COLUMNS} rowKey={(peer) => peer.id} empty="This site is paired with no other yet." />
          )}
        </Loaded>
      </Panel>
      <Panel
        title="Limits of the whole site"
        actions={
          may('administrator') &&
          status.data && (
            <Button size="sm" variant="secondary" onClick={() => setAsked('limits')}>
              Change the limits
            </Button>
          )
        }
      >
        <Loaded query={status}>
          {(site) => (
            <>
              <Hours title="Sent to all peers" rules={site.throttle_out.rules} />
              <Hours title="Received from all peers" rules={site.throttle_in.rules} />
              <Facts
                facts={[
                  ['Transfers at once', `${site.transfer_size} at most; ${site.transfers_under_way} under way, ${site.transfers_waiting} wait`],
                  ['Hosts come first', site.host_precedence && (PRECEDENCE[site.host_precedence] ?? site.host_precedence)],
                  ['Held back now', site.held_back && `transfers use ${site.held_back.share_percent} % of a processor at most, for the sake of hosts`],
                ]}
              />
            </>
          )}
        </Loaded>
      </Panel>
      {may('administrator') && accelerator.data?.state === 'off' && !accelerator.data.listen && (
        <p className="quiet">
          Other programs can be made faster over the link, too: <Link to="/accelerator">the accelerator</Link> is off.
        </p>
      )}
      {asked === 'invite' && <Invite onClose={() => setAsked(null)} />}
      {asked === 'join' && <Join onClose={() => setAsked(null)} />}
      {asked === 'limits' && status.data && <SiteLimits status={status.data} onClose={() => setAsked(null)} />}
    </PageFrame>
  );
}
