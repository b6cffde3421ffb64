import { Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, confirming, planned, type Schemas } from '../api/client';
import { usePeers, useSite, useVolumes } from '../api/queries';
import { SITE } from '../api/site';
import { More, SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { CopyLine } from '../words/CopyLine';
import { duration, readDuration } from '../words/quantities';
import { Ago } from '../words/Time';

export function Invite({ onClose }: { onClose: () => void }) {
  const [valid, setValid] = useState('15m');
  const seconds = readDuration(valid);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Invite a site',
        verb: 'Make a code',
        given: typeof seconds === 'number' && valid,
        fields: <TextField label="Good for" value={valid} onChange={setValid} required wrong={typeof seconds === 'string' ? seconds : null} help="How long whoever administers the other site needs to type it in" />,
        plan: () =>
          Promise.resolve({
            would: [`A code is made, good for one pairing within ${duration(seconds as number)}.`, 'Whoever has it first can pair with this site. It gets no rights by that.'],
          }),
        run: () => answered(api.POST('/api/v1/invitations', { body: { valid_seconds: seconds as number } })),
        done: (answer) => <InvitationCode invitation={answer as Schemas['Invitation']} />,
      }}
    />
  );
}

/** Where a site is met that listens on every address: where this browser has found it, unless that is by way of another site. */
function reached(address: string): string {
  const [, host, port] = /^(.*):(\d+)$/.exec(address) ?? [];
  if (host !== '0.0.0.0' && host !== '[::]') return address;
  return `${SITE ? 'HOST' : window.location.hostname}:${port}`;
}

export function InvitationCode({ invitation }: { invitation: Schemas['Invitation'] }) {
  const site = useSite();
  return (
    <>
      <p className="gap-below">
        Treat the code as a password. It ends <Ago at={invitation.expires_at} />. It is shown this once.
      </p>
      <CopyLine label="The code" text={invitation.code} />
      {site.data?.peer_address ? (
        <>
          <CopyLine label="The address of this site, as the other one reaches it" text={reached(site.data.peer_address)} />
          {reached(site.data.peer_address) !== site.data.peer_address && (
            <p className="quiet gap-below">It listens on every address of its machine. If the other site reaches that by another name than this browser does, take that name, with the same port.</p>
          )}
        </>
      ) : (
        <p>This site does not listen for peers (--peer-listen off): the other site has to invite it instead.</p>
      )}
    </>
  );
}

export function Join({ onClose }: { onClose: () => void }) {
  const [address, setAddress] = useState('');
  const [code, setCode] = useState('');
  const [name, setName] = useState('');
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Join a site',
        verb: 'Pair',
        given: address !== '' && code !== '' && address,
        fields: (
          <>
            <TextField label="Address" value={address} onChange={setAddress} required placeholder="north.example.net:7440" />
            <TextField label="Code of its invitation" type="password" value={code} onChange={setCode} required />
            <TextField label="Name of the peer here" value={name} onChange={setName} help="Left empty: what it calls itself." />
          </>
        ),
        plan: () => Promise.resolve({ would: [`This site and the one at ${address} learn each other's key, once.`, 'Neither gets a right by that.'] }),
        run: () => answered(api.POST('/api/v1/peers', { body: { address, code, ...(name && { name }) } })),
      }}
    />
  );
}

export function Allow({ peer, onClose }: { peer: string; onClose: () => void }) {
  const volumes = useVolumes();
  const [volume, setVolume] = useState('');
  const [reverse, setReverse] = useState(true);
  const [fence, setFence] = useState(false);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Allow ${peer} to mirror a volume`,
        verb: 'Allow',
        given: volume !== '' && `${volume} ${reverse} ${fence}`,
        fields: (
          <>
            <SelectField
              label="Volume"
              value={volume}
              onChange={setVolume}
              options={[{ value: '', label: 'Choose one' }, ...(volumes.data ?? []).map(({ name }) => ({ value: name, label: name }))]}
            />
            <Checkbox id="reverse" label="Also the way back" description="Failback needs it: its volume may become the original, and this one the replica." isChecked={reverse} onChange={(_, on) => setReverse(on)} />
            <Checkbox id="fence" label="Fence the volume once it is overtaken" description="Hosts here cannot write any more while they may be writing there." isChecked={fence} onChange={(_, on) => setFence(on)} />
          </>
        ),
        plan: () => Promise.resolve({ would: [`${peer} may read ${volume} and keep a replica of it.`] }),
        cost: ['This site keeps one snapshot for it: what hosts replace between two updates stays in the pool.'],
        run: () => answered(api.POST('/api/v1/peers/{peer}/allow', { params: { path: { peer } }, body: { volumes: [volume], reverse, fence } })),
      }}
    />
  );
}

export function Deny({ peer, volume, onClose }: { peer: string; volume: string; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Take from ${peer} the right on ${volume}`,
        verb: 'Deny',
        typed: volume,
        plan: () => Promise.resolve({ would: [`${peer} cannot read ${volume} any more, from this moment on. Updates of its replica fail.`, 'The replica there stays as it is.'] }),
        run: () => answered(api.POST('/api/v1/peers/{peer}/deny', { params: { path: { peer } }, body: { volumes: [volume] } })),
      }}
    />
  );
}

const MAY_HERE: Record<string, string> = {
  none: 'Its people see nothing of this site any more, at once.',
  viewer: 'Its people see all of this site, and change nothing.',
  operator: 'Its people see all of this site, and may update, break, swap and drill here. What takes data away they may not.',
};

/** In the unit in which lines are sold, where that says it exactly. */
function rateAsSet(bytes: number | null | undefined): string {
  if (!bytes) return 'unlimited';
  return (bytes * 8) % 1e5 === 0 ? `${(bytes * 8) / 1e6}Mbit/s` : `${bytes}B/s`;
}

const MODES: Record<Schemas['PathsMode'], string> = { multiplex: 'all at once', failover: 'the first that works' };
const KEEPALIVE = 2;

export function PeerSettings({ peer, onClose }: { peer: Schemas['PeerStatus']; onClose: () => void }) {
  const link = peer.link;
  const was = {
    name: peer.name,
    role: peer.role ?? 'none',
    out: peer.throttle_out?.rules ?? 'unlimited',
    in: peer.throttle_in?.rules ?? 'unlimited',
    address: peer.address ?? '',
    paths: (link?.paths ?? []).join(' '),
    mode: link?.mode ?? 'multiplex',
    rate: rateAsSet(link?.rate_bytes_per_second),
    dscp: String(link?.dscp ?? 0),
    keepalive: `${link?.keepalive_seconds ?? KEEPALIVE}s`,
  };
  const [given, setGiven] = useState<typeof was>(was);
  const fill = (of: keyof typeof was) => (text: string) => setGiven({ ...given, [of]: text });
  const isNew = (of: keyof typeof was) => given[of] !== was[of];
  const paths = given.paths.split(/[\s,]+/).filter(Boolean);
  const dscp = /^\d+$/.test(given.dscp) && Number(given.dscp) <= 63 ? Number(given.dscp) : null;
  const keepalive = readDuration(given.keepalive);

  const body: Schemas['SetPeer'] = {};
  const would: string[] = [];
  if (isNew('name')) [body.name] = [given.name, would.push(`It is called ${given.name} at this site from then on.`)];
  if (isNew('role')) [body.role] = [given.role, would.push(MAY_HERE[given.role]!)];
  if (isNew('out')) [body.throttle_out] = [given.out, would.push(`What is sent to it is limited by ${given.out}, at once.`)];
  if (isNew('in')) [body.throttle_in] = [given.in, would.push(`What it sends here is limited by ${given.in}, at once.`)];
  if (isNew('address')) [body.address] = [given.address, would.push(given.address ? `It is dialled at ${given.address}.` : 'It is not dialled any more: it dials this site.')];
  if (paths.join(' ') !== was.paths) [body.paths] = [paths, would.push(paths.length > 0 ? `It is reached over ${paths.join(' and ')}, in this order of preference.` : 'It is reached by its address alone.')];
  if (isNew('mode')) [body.mode] = [given.mode, would.push(`Of several paths it takes ${MODES[given.mode]}.`)];
  if (isNew('rate')) [body.rate] = [given.rate, would.push(given.rate === 'unlimited' ? 'No rate is committed.' : `All that is sent to it, over all connections and paths, stays below ${given.rate}.`)];
  if (isNew('dscp') && dscp !== null) [body.dscp] = [dscp, would.push(dscp ? `Packets to it are marked with DSCP ${dscp}.` : 'Packets to it are not marked.')];
  if (isNew('keepalive') && typeof keepalive === 'number') [body.keepalive_seconds] = [keepalive, would.push(`A quiet session is asked for a sign of life every ${given.keepalive}, or as seldom as the other site says.`)];
  const isRight = would.length > 0 && given.name !== '' && dscp !== null && typeof keepalive === 'number';
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Settings of ${peer.name}`,
        verb: 'Change',
        given: isRight && JSON.stringify(body),
        fields: (
          <>
            <SelectField
              label="Its people may, at this site"
              value={given.role}
              onChange={fill('role')}
              options={[
                { value: 'none', label: 'nothing' },
                { value: 'viewer', label: 'look (viewer)' },
                { value: 'operator', label: 'run what is here (operator)' },
              ]}
            />
            <TextField label="Limit of what is sent to it" value={given.out} onChange={fill('out')} help="4MB/s, with times 4MB/s,08:00-18:00=1MB/s, or unlimited" />
            <TextField label="Limit of what it sends here" value={given.in} onChange={fill('in')} />
            <TextField label="Address" value={given.address} onChange={fill('address')} help="HOST:PORT; empty: it dials this site" />
            <TextField label="Name here" value={given.name} onChange={fill('name')} required />
            <More label="Paths and packets" isOpen={was.paths !== '' || was.rate !== 'unlimited' || was.dscp !== '0'}>
              <TextField label="Paths" value={given.paths} onChange={fill('paths')} placeholder="10.0.1.1=10.0.1.2:7440 10.0.2.1=10.0.2.2:7440" help="LOCAL=HOST:PORT, all of them, with a space between; at the site that dials. Empty: its address alone" />
              <SelectField label="Of several paths it takes" value={given.mode} onChange={fill('mode')} options={Object.entries(MODES).map(([value, label]) => ({ value, label }))} />
              <TextField label="Committed rate (CIR)" value={given.rate} onChange={fill('rate')} help="9.6Mbit/s; everything to it together stays below. Or unlimited" />
              <TextField label="DSCP mark" type="number" value={given.dscp} onChange={fill('dscp')} help="1 to 63; 0: no mark" wrong={dscp === null ? 'It is a number from 0 to 63.' : null} />
              <TextField label="Sign of life every" value={given.keepalive} onChange={fill('keepalive')} help="2s to 10m" wrong={typeof keepalive === 'string' ? keepalive : null} />
            </More>
          </>
        ),
        plan: () => Promise.resolve({ would }),
        run: () => answered(api.POST('/api/v1/peers/{peer}/set', { params: { path: { peer: peer.name } }, body })),
        leaves: body.name ? { to: `/peers/${body.name}`, keys: [['peer', peer.name]] } : undefined,
      }}
    />
  );
}

/** A site that was paired anew, since its key was lost, takes the place of what it was. */
export function Rekey({ peer, onClose }: { peer: string; onClose: () => void }) {
  const peers = usePeers();
  const [other, setOther] = useState('');
  const others = (peers.data ?? []).map(({ name }) => name).filter((name) => name !== peer);
  const path = { peer };
  const body: Schemas['RekeyPeer'] = { with: other };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Another key of ${peer}`,
        verb: 'It is that site',
        given: other !== '' && other,
        typed: other === '' ? undefined : peer,
        fields: (
          <SelectField
            label={`The peer that ${peer} was paired anew as`}
            value={other}
            onChange={setOther}
            help={others.length === 0 ? `There is no other peer. Pair with the site anew first, under another name; then say here that it takes the place of ${peer}.` : 'Its mirrors, rights and limits go on, and nothing is copied again. Be sure that it is that site.'}
            options={[{ value: '', label: 'Choose one' }, ...others.map((name) => ({ value: name, label: name }))]}
          />
        ),
        plan: () => planned(api.POST('/api/v1/peers/{peer}/rekey', { params: { path, query: { plan: true } }, body })),
        run: () => answered(api.POST('/api/v1/peers/{peer}/rekey', { params: { path }, body })),
        leaves: { to: '/peers', keys: [['peer', peer]] },
      }}
    />
  );
}

export function RemovePeer({ peer, onClose }: { peer: string; onClose: () => void }) {
  const path = { peer };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `End the pairing with ${peer}`,
        verb: 'Remove',
        typed: peer,
        plan: () => planned(api.DELETE('/api/v1/peers/{peer}', { params: { path, query: { plan: true } } })),
        run: () => answered(api.DELETE('/api/v1/peers/{peer}', { params: { path, header: confirming(peer) } })),
        leaves: { to: '/peers', keys: [['peer', peer]] },
      }}
    />
  );
}
