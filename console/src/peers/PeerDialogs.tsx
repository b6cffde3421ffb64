import { Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, confirming, planned, type Schemas } from '../api/client';
import { useSite, useVolumes } from '../api/queries';
import { SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { CopyLine } from '../words/CopyLine';
import { Ago } from '../words/Time';

export function Invite({ onClose }: { onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Invite a site',
        verb: 'Make a code',
        plan: () =>
          Promise.resolve({
            would: ['A code is made, good for one pairing within fifteen minutes.', 'Whoever has it first can pair with this site. It gets no rights by that.'],
          }),
        run: () => answered(api.POST('/api/v1/invitations', { body: { valid_seconds: 900 } })),
        done: (answer) => <InvitationCode invitation={answer as Schemas['Invitation']} />,
      }}
    />
  );
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
        <CopyLine label="The address of this site, as the other one reaches it" text={site.data.peer_address} />
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

export function PeerSettings({ peer, onClose }: { peer: Schemas['PeerStatus']; onClose: () => void }) {
  const was = { out: peer.throttle_out?.rules ?? 'unlimited', in: peer.throttle_in?.rules ?? 'unlimited', address: peer.address ?? '', role: peer.role ?? 'none' };
  const [out, setOut] = useState(was.out);
  const [inward, setInward] = useState(was.in);
  const [address, setAddress] = useState(was.address);
  const [role, setRole] = useState<string>(was.role);
  const body: Schemas['SetPeer'] = {
    ...(role !== was.role && { role }),
    ...(out !== was.out && { throttle_out: out }),
    ...(inward !== was.in && { throttle_in: inward }),
    ...(address !== was.address && { address }),
  };
  const would = [
    body.role && MAY_HERE[body.role],
    body.throttle_out && `What is sent to it is limited by ${out}, at once.`,
    body.throttle_in && `What it sends here is limited by ${inward}, at once.`,
    body.address !== undefined && (address ? `It is dialled at ${address}.` : 'It is not dialled any more: it dials this site.'),
  ].filter((line): line is string => typeof line === 'string' && line !== '');
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Settings of ${peer.name}`,
        verb: 'Change',
        given: would.length > 0 && JSON.stringify(body),
        fields: (
          <>
            <SelectField
              label="Its people may, at this site"
              value={role}
              onChange={setRole}
              options={[
                { value: 'none', label: 'nothing' },
                { value: 'viewer', label: 'look (viewer)' },
                { value: 'operator', label: 'run what is here (operator)' },
              ]}
            />
            <TextField label="Limit of what is sent to it" value={out} onChange={setOut} help="4MB/s, with times 4MB/s,08:00-18:00=1MB/s, or unlimited" />
            <TextField label="Limit of what it sends here" value={inward} onChange={setInward} />
            <TextField label="Address" value={address} onChange={setAddress} help="HOST:PORT; empty: it dials this site" />
          </>
        ),
        plan: () => Promise.resolve({ would }),
        run: () => answered(api.POST('/api/v1/peers/{peer}/set', { params: { path: { peer: peer.name } }, body })),
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
      }}
    />
  );
}
