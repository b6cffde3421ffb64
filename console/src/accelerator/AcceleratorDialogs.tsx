import { Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { usePeers, useVolumes } from '../api/queries';
import { More, SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { readSize, size } from '../words/quantities';

type Status = Schemas['AcceleratorStatus'];
type Policy = Schemas['AcceleratorPolicy'];

export const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** Switches it on, or changes what it runs with; the plan has the packet filter's rules. */
export function SwitchOn({ status, onClose }: { status: Status; onClose: () => void }) {
  const isOff = status.state === 'off';
  const was = {
    lan: (status.lan ?? []).join(' '),
    wan: status.wan ?? '',
    store: '',
    listen: status.listen ?? '',
    forward: (status.forward_to ?? []).join(' '),
  };
  const [given, setGiven] = useState(was);
  const [bridge, setBridge] = useState(false);
  const fill = (of: keyof typeof was) => (text: string) => setGiven({ ...given, [of]: text });
  const bytes = given.store === '' ? null : readSize(given.store);
  const body: Schemas['StartAccelerator'] = {
    ...(given.lan !== was.lan && { lan: words(given.lan) }),
    ...(given.wan !== was.wan && { wan: given.wan }),
    ...(typeof bytes === 'number' && { store_size_bytes: bytes }),
    ...(given.listen !== was.listen && given.listen !== '' && { listen: given.listen }),
    ...(given.forward !== was.forward && { forward_to: words(given.forward) }),
    ...(bridge && { bridge }),
  };
  const asked = JSON.stringify(body);
  const stays = isOff ? 'Empty: as it was, or as farside.toml says' : 'Empty: none';
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: isOff ? 'Switch the accelerator on' : 'Settings of the accelerator',
        verb: isOff ? 'Switch it on' : 'Change',
        given: typeof bytes !== 'string' && (isOff || asked !== '{}') && asked,
        fields: (
          <>
            <TextField label="Interfaces towards the hosts of this site" value={given.lan} onChange={fill('lan')} placeholder="eth1" help={`${stays}. With these and the next, connections of the hosts behind them are taken.`} />
            <TextField label="Interface towards the other sites" value={given.wan} onChange={fill('wan')} placeholder="eth0" />
            <TextField label="Chunk store, at most" value={given.store} onChange={fill('store')} placeholder="10G" wrong={typeof bytes === 'string' ? bytes : null} help={status.store_size_bytes ? `${size(status.store_size_bytes)} now` : undefined} />
            <More label="Addresses and bridges">
              <TextField label="Other accelerators meet it at" value={given.listen} onChange={fill('listen')} placeholder="0.0.0.0:7442" />
              <TextField label="Forwards of peers may end at" value={given.forward} onChange={fill('forward')} placeholder="10.1.0.5:5432" help="HOST:PORT, with a space between" />
              <Checkbox id="bridge" label="Only if these are ports of one bridge" isChecked={bridge} onChange={(_, on) => setBridge(on)} />
            </More>
          </>
        ),
        plan: async () => {
          const plan = await answered(api.POST('/api/v1/accelerator/plan', { body }));
          return {
            would: [
              plan.lan.length > 0 && plan.wan
                ? `Connections from hosts behind ${plan.lan.join(', ')} that go out by ${plan.wan} are taken, now and after each restart.`
                : 'No connection is taken by itself: only forwards and what is sent ahead go through it.',
              `Other accelerators meet it at ${plan.listen}.`,
              plan.forward_to.length > 0 ? `Forwards of peers may end at ${plan.forward_to.join(', ')}.` : 'Forwards of peers may end nowhere here.',
            ],
            more: plan.rules ? (
              <>
                <h2>Rules that it installs</h2>
                <pre className="rules" tabIndex={0} aria-label="Rules that it installs">
                  {plan.rules}
                </pre>
              </>
            ) : undefined,
          };
        },
        run: () => answered(api.POST('/api/v1/accelerator/up', { body })),
      }}
    />
  );
}

export function SwitchOff({ status, onClose }: { status: Status; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Switch the accelerator off',
        verb: 'Switch it off',
        plan: () =>
          Promise.resolve({
            would: [
              'New connections go their plain way, now and after each restart.',
              status.optimized_connections > 0 ? `The ${status.optimized_connections} connections that it has now are reset.` : 'It has no connections now.',
              'The chunk store stays, and is there when it is switched on again.',
            ],
          }),
        run: () => answered(api.POST('/api/v1/accelerator/down')),
      }}
    />
  );
}

const DONE: Record<Schemas['Acceleration'], string> = {
  full: 'full: references, compression, transport',
  dre: 'dre: references, transport',
  lz: 'lz: compression, transport',
  transport: 'transport: full windows, quick recovery',
  'pass-through': 'pass-through: nothing',
};

/** A policy of this site, new or changed. */
export function SetPolicy({ policy, onClose }: { policy?: Policy; onClose: () => void }) {
  const [application, setApplication] = useState(policy?.application ?? '');
  const [action, setAction] = useState<Schemas['Acceleration']>(policy?.action ?? 'full');
  const [lists, setLists] = useState({
    ports: policy?.ports.join(' ') ?? '',
    clients: policy?.clients.join(' ') ?? '',
    servers: policy?.servers.join(' ') ?? '',
    addresses: policy?.addresses.join(' ') ?? '',
  });
  const [first, setFirst] = useState(false);
  const fill = (of: keyof typeof lists) => (text: string) => setLists({ ...lists, [of]: text });
  const body: Schemas['SetAcceleratorPolicy'] = {
    application,
    action,
    ports: words(lists.ports),
    clients: words(lists.clients),
    servers: words(lists.servers),
    addresses: words(lists.addresses),
    first,
  };
  const where = [
    lists.ports && `to ports ${words(lists.ports).join(', ')}`,
    lists.clients && `from ${words(lists.clients).join(', ')}`,
    lists.servers && `to ${words(lists.servers).join(', ')}`,
    lists.addresses && `from or to ${words(lists.addresses).join(', ')}`,
  ].filter(Boolean);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: policy ? `Policy ${policy.application}` : 'Set a policy',
        verb: 'Set it',
        given: application !== '' && JSON.stringify(body),
        fields: (
          <>
            {!policy && <TextField label="Application" value={application} onChange={setApplication} required placeholder="payroll" help="What it is called in tables and figures" />}
            <SelectField label="What is done" value={action} onChange={(chosen) => setAction(chosen as Schemas['Acceleration'])} options={Object.entries(DONE).map(([value, label]) => ({ value, label }))} />
            <TextField label="Ports of the server" value={lists.ports} onChange={fill('ports')} placeholder="7000-7009 8080" help="Each one or a range, with a space between; empty: all" />
            <TextField label="Servers" value={lists.servers} onChange={fill('servers')} placeholder="10.2.0.0/24" help="Addresses or subnets; empty: all" />
            <TextField label="Clients" value={lists.clients} onChange={fill('clients')} />
            <TextField label="Either of them" value={lists.addresses} onChange={fill('addresses')} help="Client or server is in one of these" />
            <Checkbox id="first" label="Asked before all others" isChecked={first} onChange={(_, on) => setFirst(on)} />
          </>
        ),
        plan: () =>
          Promise.resolve({
            would: [
              `For new connections ${where.length > 0 ? where.join(', ') : 'of any kind'}, as ${application}: ${DONE[action]}. What the other site’s policy does not allow is not done.`,
              'Connections that are open keep what they have.',
              'It comes before the policies of farside.toml and those that are shipped.',
            ],
          }),
        run: () => answered(api.POST('/api/v1/accelerator/policies', { body })),
      }}
    />
  );
}

export function RemovePolicy({ application, onClose }: { application: string; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Take back the policy ${application}`,
        verb: 'Take it back',
        plan: () => Promise.resolve({ would: ['For new connections the next policy that fits holds.', 'Connections that are open keep what they have.'] }),
        run: () => answered(api.DELETE('/api/v1/accelerator/policies/{application}', { params: { path: { application } } })),
      }}
    />
  );
}

export function ReloadPolicies({ onClose }: { onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Read the policies of farside.toml again',
        verb: 'Read them',
        plan: () => Promise.resolve({ would: ['What [accelerator.policies] of farside.toml says by now holds for new connections. The rest of the file holds from the next start on.'] }),
        run: () => answered(api.POST('/api/v1/accelerator/reload')),
      }}
    />
  );
}

const anyOf = (names: string[] | undefined, none: string) => [{ value: '', label: none }, ...(names ?? []).map((name) => ({ value: name, label: name }))];

export function ClearCache({ bytes, onClose }: { bytes: number; onClose: () => void }) {
  const peers = usePeers();
  const [peer, setPeer] = useState('');
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Empty the chunk store',
        verb: 'Empty it',
        given: peer,
        fields: <SelectField label="What has passed between this site and" value={peer} onChange={setPeer} options={anyOf(peers.data?.map(({ name }) => name), 'any other')} />,
        plan: () => Promise.resolve({ would: [peer ? `What has passed between this site and ${peer} is forgotten.` : `All ${size(bytes)} of it are forgotten.`, 'Connections go on. What is missing passes once more.'] }),
        run: () => answered(api.POST('/api/v1/accelerator/cache/clear', { body: { ...(peer && { peer }) } })),
      }}
    />
  );
}

export function ResetConnection({ client, server, onClose }: { client: string; server: string; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Reset ${client} to ${server}`,
        verb: 'Reset it',
        plan: () => Promise.resolve({ would: ['The connection is cut at both ends. Most programs connect again, and the policies of now hold for that.'] }),
        run: () => answered(api.POST('/api/v1/accelerator/connections/reset', { body: { client, server } })),
      }}
    />
  );
}

export function AddForward({ onClose }: { onClose: () => void }) {
  const peers = usePeers();
  const [listen, setListen] = useState('');
  const [destination, setDestination] = useState('');
  const [peer, setPeer] = useState('');
  const body = { listen, destination, peer };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Forward a port to a peer’s side',
        verb: 'Forward it',
        given: listen !== '' && destination !== '' && peer !== '' && JSON.stringify(body),
        fields: (
          <>
            <TextField label="Listen here at" value={listen} onChange={setListen} required placeholder="127.0.0.1:5432" />
            <SelectField label="Peer" value={peer} onChange={setPeer} options={anyOf(peers.data?.map(({ name }) => name), 'Choose one')} />
            <TextField label="Its accelerator connects to" value={destination} onChange={setDestination} required placeholder="10.2.0.5:5432" help="The peer has to allow it: forwards of peers may end there" />
          </>
        ),
        plan: () => Promise.resolve({ would: [`Whoever connects to ${listen} here is connected to ${destination}, from the side of ${peer}. It is remembered.`, 'No privilege and no change of routes is needed.'] }),
        run: () => answered(api.POST('/api/v1/accelerator/forwards', { body })),
      }}
    />
  );
}

export function EndForward({ listen, onClose }: { listen: string; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `End the forward at ${listen}`,
        verb: 'End it',
        plan: () => Promise.resolve({ would: [`Nobody is met at ${listen} any more. Connections that it has go on.`] }),
        run: () => answered(api.DELETE('/api/v1/accelerator/forwards/{listen}', { params: { path: { listen } } })),
      }}
    />
  );
}

/** A failure comes soon; what has lasted longer is under way, and is listed. */
const BEGINS_WITHIN = 2_000;

export function Preposition({ onClose }: { onClose: () => void }) {
  const volumes = useVolumes();
  const peers = usePeers();
  const [volume, setVolume] = useState('');
  const [peer, setPeer] = useState('');
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Fill a peer’s chunk store ahead of time',
        verb: 'Send it ahead',
        given: volume !== '' && `${volume} ${peer}`,
        fields: (
          <>
            <SelectField label="Volume" value={volume} onChange={setVolume} options={anyOf(volumes.data?.map(({ name }) => name), 'Choose one')} help="Its newest snapshot is sent. Files: farside accel preposition PATH, where they are" />
            <SelectField label="Peer" value={peer} onChange={setPeer} options={anyOf(peers.data?.map(({ name }) => name), 'The only one')} />
          </>
        ),
        plan: () => Promise.resolve({ would: ['The first transfer of the same bytes to that site, by whatever program, passes as references afterwards.', 'It gives way to connections. It ends if this browser is closed before it is done; the same again sends only what is missing.'] }),
        run: async () => {
          const body = { volume, job: `console-${Date.now()}`, ...(peer && { peer }) };
          const sending = answered(api.POST('/api/v1/accelerator/prepositions/volume', { body }));
          // What comes later of it nobody waits for any more.
          sending.catch(() => undefined);
          await Promise.race([sending, new Promise((done) => setTimeout(done, BEGINS_WITHIN))]);
        },
      }}
    />
  );
}

export function EndPreposition({ job, what, onClose }: { job: string; what: string; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `End sending ${what} ahead`,
        verb: 'End it',
        plan: () => Promise.resolve({ would: ['No more of it is sent. What has come to the peer is kept there.'] }),
        run: () => answered(api.DELETE('/api/v1/accelerator/prepositions/{job}', { params: { path: { job } } })),
      }}
    />
  );
}
