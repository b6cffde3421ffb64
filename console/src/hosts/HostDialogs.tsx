import { Button, Checkbox } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, planned, type Schemas } from '../api/client';
import { useHosts, useVolumes } from '../api/queries';
import { SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { CopyLine } from '../words/CopyLine';
import { save } from '../words/save';
import { sentence } from '../words/sentence';

export function AddHost({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Add a host',
        verb: 'Add',
        given: name !== '' && name,
        fields: <TextField label="Name" value={name} onChange={setName} required placeholder="web1" help="Where certificates of your own are used: the name that its certificate has." />,
        plan: () => Promise.resolve({ would: [`${name} gets a certificate of this site, for ten years. Whoever has its key is ${name}.`, 'It may open no volume until one is allowed.'] }),
        run: () => answered(api.POST('/api/v1/hosts', { body: { name } })),
        done: (answer) => <Added host={answer as Schemas['AddedHost']} />,
      }}
    />
  );
}

function Added({ host }: { host: Schemas['AddedHost'] }) {
  if (!host.files) return <p>{host.name} is known. Its certificate comes from elsewhere, so there is nothing to hand over.</p>;
  const files: [string, string][] = [
    ['ca-cert.pem', host.files.ca_certificate],
    ['client-cert.pem', host.files.certificate],
    ['client-key.pem', host.files.key],
  ];
  return (
    <>
      <p className="gap-below">
        These three files belong to {host.name}, in a directory that only root may read. They are shown this once: the site keeps no copy of the key. Bring them there over a channel that you trust.
      </p>
      <div className="button-row gap-below">
        {files.map(([name, text]) => (
          <Button key={name} variant="secondary" size="sm" onClick={() => save(name, text, 'application/x-pem-file')}>
            Save {name}
          </Button>
        ))}
      </div>
      {files.map(([name, text]) => (
        <CopyLine key={name} label={name} text={text} />
      ))}
      <p>
        <Link to={`/hosts/${host.name}`}>Let {host.name} open a volume</Link>
      </p>
    </>
  );
}

/** What a person must know of a change of rights; null: nothing. */
const notes = (answer: unknown) => {
  const said = (answer as Schemas['HostStatus']).notes ?? [];
  return said.length === 0 ? null : said.map((note) => <p key={note}>{sentence(note)}</p>);
};

/** A right for a host on a volume; what is not named is chosen. */
export function AllowHost({ host: ofHost, volume: ofVolume, onClose }: { host?: string; volume?: string; onClose: () => void }) {
  const hosts = useHosts();
  const volumes = useVolumes();
  const [host, setHost] = useState(ofHost ?? '');
  const [volume, setVolume] = useState(ofVolume ?? '');
  const [readOnly, setReadOnly] = useState(false);
  const choices = (names: string[] | undefined) => [{ value: '', label: 'Choose one' }, ...(names ?? []).map((name) => ({ value: name, label: name }))];
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: ofHost ? `Let ${ofHost} open a volume` : `Let a host open ${ofVolume}`,
        verb: 'Allow',
        given: host !== '' && volume !== '' && `${host} ${volume} ${readOnly}`,
        fields: (
          <>
            {!ofHost && <SelectField label="Host" value={host} onChange={setHost} options={choices(hosts.data?.map(({ name }) => name))} help={hosts.data?.length === 0 ? 'There is none yet: add one on the page Hosts.' : undefined} />}
            {!ofVolume && <SelectField label="Volume" value={volume} onChange={setVolume} options={choices(volumes.data?.map(({ name }) => name))} />}
            <Checkbox id="read-only" label="To read only" isChecked={readOnly} onChange={(_, on) => setReadOnly(on)} />
          </>
        ),
        plan: () => Promise.resolve({ would: [`${host} may open ${volume}${readOnly ? ', and not write to it' : ' and write to it'}.`, 'It may read its snapshots.'] }),
        run: () => answered(api.POST('/api/v1/hosts/{host}/allow', { params: { path: { host } }, body: { volumes: [volume], read_only: readOnly } })),
        done: notes,
      }}
    />
  );
}

export function DenyHost({ host, volume, onClose }: { host: string; volume: string; onClose: () => void }) {
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Take from ${host} the right to open ${volume}`,
        verb: 'Deny',
        typed: volume,
        plan: () => Promise.resolve({ would: [`${host} can open ${volume} no more.`, 'What it has open of it is cut at once. Commands under way end first.'] }),
        run: () => answered(api.POST('/api/v1/hosts/{host}/deny', { params: { path: { host } }, body: { volumes: [volume] } })),
        done: notes,
      }}
    />
  );
}

export function RemoveHost({ host, onClose }: { host: string; onClose: () => void }) {
  const path = { host };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Remove the host ${host}`,
        verb: 'Remove',
        typed: host,
        plan: () => planned(api.DELETE('/api/v1/hosts/{host}', { params: { path, query: { plan: true } } })),
        run: () => answered(api.DELETE('/api/v1/hosts/{host}', { params: { path } })),
        leaves: { to: '/hosts', keys: [['host', host]] },
      }}
    />
  );
}
