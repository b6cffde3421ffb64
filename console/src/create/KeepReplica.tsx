import { Button, Form } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, Failure, parts, type Schemas } from '../api/client';
import { useMirrors, usePeers, usePools, useSite } from '../api/queries';
import { More, SelectField, TextField } from '../forms/fields';
import { useAsk } from '../forms/useAsk';
import { askedWhen, inWords, type Asked, type When } from '../forms/when';
import { WhenFields } from '../forms/WhenFields';
import { PageFrame, Panel } from '../shell/PageFrame';
import { FailureNote } from '../words/FailureNote';
import { duration } from '../words/quantities';
import { PoolForm } from './PoolForm';
import { VerdictLabel } from '../mirrors/VerdictLabel';
import { Steps } from './Steps';

/** At the site of the replica: pool, peer, mirror, first copy. */
export default function KeepReplica() {
  const pools = usePools();
  const [peer, setPeer] = useState<string | null>(null);
  const [made, setMade] = useState<{ source: string; destination: string } | null>(null);
  const open = pools.data?.filter((pool) => pool.state === 'open') ?? [];
  return (
    <PageFrame title="The replica is to be here" above={<Link to="/create">Protect a volume</Link>}>
      <Panel title="Steps">
        <Steps
          steps={[
            { title: 'A pool', done: open.length > 0 ? open.map((pool) => pool.name).join(', ') : null, form: <PoolForm onDone={() => undefined} /> },
            { title: 'The site of the original', done: peer, form: <ChooseSite onDone={setPeer} /> },
            {
              title: 'The mirror, and its first copy',
              done: made && `${made.destination} follows ${made.source}; the first copy has begun.`,
              form: peer ? <MirrorForm peer={peer} pools={open.map((pool) => pool.name)} onDone={setMade} /> : null,
            },
          ]}
          after={
            <>
              <FirstCopy destination={made?.destination ?? ''} />
            </>
          }
        />
      </Panel>
    </PageFrame>
  );
}

/** How far the first copy is; it goes on by itself. */
function FirstCopy({ destination }: { destination: string }) {
  const mirror = useMirrors().data?.find(({ name, role }) => name === destination && role === 'destination');
  const isOver = mirror !== undefined && mirror.current_snapshot !== null && mirror.current_snapshot !== undefined;
  return (
    <>
      <h2>{isOver ? 'The volume is protected' : 'The first copy is under way'}</h2>
      {mirror && (
        <p>
          <VerdictLabel mirror={mirror} />
        </p>
      )}
      <p>
        {isOver ? 'The first copy has come to its end, and was compared.' : 'The volume is protected once it has ended.'}{' '}
        <Link to={`/mirrors/${destination}`}>{isOver ? 'Its mirror' : 'See how far it is'}</Link>
      </p>
    </>
  );
}

function ChooseSite({ onDone }: { onDone: (name: string) => void }) {
  const peers = usePeers();
  const [chosen, setChosen] = useState('');
  const [address, setAddress] = useState('');
  const [code, setCode] = useState('');
  const { ask, asking, failure } = useAsk();
  return (
    <>
      {(peers.data ?? []).length > 0 && (
        <Form className="gap-below" onSubmit={(event) => event.preventDefault()}>
          <SelectField label="A site that this one is paired with" value={chosen} onChange={setChosen} options={[{ value: '', label: 'Choose one' }, ...(peers.data ?? []).map(({ name }) => ({ value: name, label: name }))]} />
          <div>
            <Button isDisabled={!chosen} onClick={() => onDone(chosen)}>
              Take it
            </Button>
          </div>
        </Form>
      )}
      {(peers.data ?? []).length > 0 && <h3>Or another one, by its invitation</h3>}
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          void ask(() => answered(api.POST('/api/v1/peers', { body: { address, code } }))).then((joined) => joined && onDone(joined.name));
        }}
      >
        <TextField label="Address" value={address} onChange={setAddress} required placeholder="north.example.net:7440" help="Where the other site listens for peers" />
        <TextField label="Code of its invitation" type="password" value={code} onChange={setCode} required help="The other site’s console makes it: Protect a volume, The original is here; or Peers and paths, Invite a site." />
        <FailureNote error={failure} />
        <div>
          <Button type="submit" isDisabled={asking || !address || !code} isLoading={asking}>
            Join
          </Button>
        </div>
      </Form>
    </>
  );
}

function MirrorForm({ peer, pools, onDone }: { peer: string; pools: string[]; onDone: (made: { source: string; destination: string }) => void }) {
  const [source, setSource] = useState('');
  const [pool, setPool] = useState(pools[0] ?? '');
  const [name, setName] = useState('');
  const [when, setWhen] = useState<When>({ kind: 'rpo', time: '1m', zone: '' });
  const [retention, setRetention] = useState('');
  const [there, setThere] = useState('');
  const here = useSite().data?.name;
  const { ask, asking, failure } = useAsk();
  // Whoever copies it from the other console has the site's name before it.
  const from = source.includes(':') ? source : `${peer}:${source}`;
  const volume = name || source.split('/')[1] || '';
  const destination = `${pool}/${volume}`;
  const asked = askedWhen(when);
  const isRight = /^[^:/]+:[^:/]+\/[^/]+$/.test(from) && volume !== '' && pool !== '' && typeof asked !== 'string';
  const make = async () => {
    const body: Schemas['CreateMirror'] = { source: from, destination, ...(when.kind !== 'asked' && (asked as Asked)), ...(retention && { retention }) };
    const done = await ask(async () => {
      // The second time it is there already: only the first copy failed.
      if (there !== JSON.stringify(body)) await answered(api.POST('/api/v1/mirrors', { body }));
      setThere(JSON.stringify(body));
      return answered(api.POST('/api/v1/mirrors/{pool}/{volume}/initialize', { params: { path: parts(destination) }, body: {} }));
    });
    if (done) onDone({ source: from, destination });
  };
  return (
    <Form
      onSubmit={(event) => {
        event.preventDefault();
        if (isRight) void make();
      }}
    >
      <TextField label={`Volume at ${peer}`} value={source} onChange={setSource} required placeholder="tank/mail" help={`POOL/VOL, as ${peer} calls it. It has to be allowed there.`} />
      <SelectField label="Pool of the replica" value={pool} onChange={setPool} options={pools.map((each) => ({ value: each, label: each }))} />
      <TextField label="Name of the replica" value={volume} onChange={setName} required />
      <WhenFields label="Updates begin" kinds={['rpo', 'every', 'cron', 'asked']} when={when} onChange={setWhen} wrong={typeof asked === 'string' ? asked : null} />
      {when.kind === 'rpo' && <p className="quiet">Recovery point objective: what is written later than that may be lost with the site.</p>}
      <More label="Points that stay">
        <TextField label="Points that stay" value={retention} onChange={setRetention} placeholder="last=10,hourly=24,daily=7" help="Empty: the newest, and what persons made. It can be changed later." />
      </More>
      {isRight && (
        <p>
          {destination} becomes a read-only replica of {from}.{' '}
          {typeof asked !== 'string' && (when.kind === 'rpo' ? `It is kept at most ${duration(asked.rpo_seconds)} old.` : when.kind === 'asked' ? 'It is updated when somebody asks.' : `It is updated ${inWords(asked)}.`)} All
          data of the volume travels once, compressed; afterwards only what changes.
        </p>
      )}
      <FailureNote error={failure} />
      {failure instanceof Failure && failure.code === 'peer-refused' && (
        <p>
          In the console of {peer}: <em>Protect a volume</em>, <em>The original is here</em>, up to the step <em>Its right</em>; or <em>Peers and paths</em>, {here || 'this site'}, <em>Allow a volume</em>. Then press this again.
        </p>
      )}
      <div>
        <Button type="submit" isDisabled={!isRight || asking} isLoading={asking}>
          Make the mirror and begin the first copy
        </Button>
      </div>
    </Form>
  );
}
