import { Button, Checkbox, Form } from '@patternfly/react-core';
import { useEffect, useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, type Peer, type Schemas } from '../api/client';
import { usePeers, usePools, useSite, useVolumes } from '../api/queries';
import { SelectField } from '../forms/fields';
import { useAsk } from '../forms/useAsk';
import { InvitationCode } from '../peers/PeerDialogs';
import { PageFrame, Panel } from '../shell/PageFrame';
import { CopyLine } from '../words/CopyLine';
import { FailureNote } from '../words/FailureNote';
import { PoolForm } from './PoolForm';
import { Steps } from './Steps';
import { VolumeForm } from './VolumeForm';

/** At the site of the original: pool, volume, peer, right. */
export default function ProtectHere() {
  const pools = usePools();
  const site = useSite();
  const [volume, setVolume] = useState<string | null>(null);
  const [peer, setPeer] = useState<string | null>(null);
  const [allowed, setAllowed] = useState(false);
  const open = pools.data?.filter((pool) => pool.state === 'open') ?? [];
  return (
    <PageFrame title="The original is here" above={<Link to="/create">Protect a volume</Link>}>
      <Panel title="Steps">
        <Steps
          steps={[
            { title: 'A pool', done: open.length > 0 ? open.map((pool) => pool.name).join(', ') : null, form: <PoolForm onDone={() => undefined} /> },
            { title: 'The volume', done: volume, form: <ChooseVolume onDone={setVolume} /> },
            { title: 'The other site', done: peer, form: <ChoosePeer onDone={setPeer} /> },
            {
              title: 'Its right',
              done: allowed ? `${peer} may mirror ${volume}.` : null,
              form: volume && peer ? <AllowForm volume={volume} peer={peer} onDone={() => setAllowed(true)} /> : null,
            },
          ]}
          after={
            <>
              <h2>Go on in the other site’s console</h2>
              <p className="gap-below">Choose “Protect a volume”, then “The replica is to be here”, and give it this as the source:</p>
              <CopyLine label="Source" text={`${site.data?.name ?? 'this-site'}:${volume}`} />
              <p>
                <Link to={`/volumes/${volume}`}>How hosts open the volume</Link>
              </p>
            </>
          }
        />
      </Panel>
    </PageFrame>
  );
}

function ChooseVolume({ onDone }: { onDone: (name: string) => void }) {
  const volumes = useVolumes();
  const [chosen, setChosen] = useState('');
  const writable = volumes.data?.filter((volume) => !volume.replica) ?? [];
  const [isNew, setIsNew] = useState<boolean | null>(null);
  const makes = isNew ?? writable.length === 0;
  if (makes) {
    return (
      <>
        <VolumeForm onDone={onDone} />
        {writable.length > 0 && (
          <Button variant="link" onClick={() => setIsNew(false)}>
            Take one that is there
          </Button>
        )}
      </>
    );
  }
  return (
    <Form onSubmit={(event) => event.preventDefault()}>
      <SelectField label="Volume" value={chosen} onChange={setChosen} options={[{ value: '', label: 'Choose one' }, ...writable.map(({ name }) => ({ value: name, label: name }))]} />
      <span className="button-row">
        <Button isDisabled={!chosen} onClick={() => onDone(chosen)}>
          Take it
        </Button>
        <Button variant="link" onClick={() => setIsNew(true)}>
          Make a new one
        </Button>
      </span>
    </Form>
  );
}

function ChoosePeer({ onDone }: { onDone: (name: string) => void }) {
  const peers = usePeers();
  const [chosen, setChosen] = useState('');
  const [invitation, setInvitation] = useState<Schemas['Invitation'] | null>(null);
  const [before, setBefore] = useState<string[]>([]);
  const { ask, asking, failure } = useAsk();
  // Whoever comes with the code is the other site.
  const came: Peer | undefined = invitation ? peers.data?.find((peer) => !before.includes(peer.id)) : undefined;
  useEffect(() => {
    if (came) onDone(came.name);
  }, [came, onDone]);
  const invite = async () => {
    setBefore((peers.data ?? []).map((peer) => peer.id));
    const made = await ask(() => answered(api.POST('/api/v1/invitations', { body: { valid_seconds: 900 } })));
    if (made) setInvitation(made);
  };
  if (invitation) {
    return (
      <>
        <InvitationCode invitation={invitation} />
        <p role="status">Waiting for the other site to join with this code. The page goes on by itself.</p>
      </>
    );
  }
  return (
    <Form onSubmit={(event) => event.preventDefault()}>
      {(peers.data ?? []).length > 0 && (
        <>
          <SelectField label="A site that this one is paired with" value={chosen} onChange={setChosen} options={[{ value: '', label: 'Choose one' }, ...(peers.data ?? []).map(({ name }) => ({ value: name, label: name }))]} />
          <div>
            <Button isDisabled={!chosen} onClick={() => onDone(chosen)}>
              Take it
            </Button>
          </div>
        </>
      )}
      <FailureNote error={failure} />
      <div>
        <Button variant={(peers.data ?? []).length > 0 ? 'secondary' : 'primary'} isDisabled={asking} isLoading={asking} onClick={() => void invite()}>
          Invite a site
        </Button>
      </div>
    </Form>
  );
}

function AllowForm({ volume, peer, onDone }: { volume: string; peer: string; onDone: () => void }) {
  const [reverse, setReverse] = useState(true);
  const { ask, asking, failure } = useAsk();
  const body = { volumes: [volume], reverse };
  return (
    <Form
      onSubmit={(event) => {
        event.preventDefault();
        void ask(() => answered(api.POST('/api/v1/peers/{peer}/allow', { params: { path: { peer } }, body }))).then((done) => done && onDone());
      }}
    >
      <p>
        {peer} may read {volume} and keep a replica of it. This site keeps one snapshot for it.
      </p>
      <Checkbox id="reverse" label="Also the way back" description="Failback needs it. Agree on it now, while both sites are alive." isChecked={reverse} onChange={(_, on) => setReverse(on)} />
      <FailureNote error={failure} />
      <div>
        <Button type="submit" isDisabled={asking} isLoading={asking}>
          Allow it
        </Button>
      </div>
    </Form>
  );
}
