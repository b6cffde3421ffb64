import { Button, Form } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api, parts } from '../api/client';
import { usePeers, usePools } from '../api/queries';
import { SelectField, TextField } from '../forms/fields';
import { useAsk } from '../forms/useAsk';
import { PageFrame, Panel } from '../shell/PageFrame';
import { FailureNote } from '../words/FailureNote';
import { duration, readDuration } from '../words/quantities';
import { PoolForm } from './PoolForm';
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
              <h2>The first copy is under way</h2>
              <p>
                The volume is protected once it has ended. <Link to={`/mirrors/${made?.destination}`}>See how far it is</Link>
              </p>
            </>
          }
        />
      </Panel>
    </PageFrame>
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
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          void ask(() => answered(api.POST('/api/v1/peers', { body: { address, code } }))).then((joined) => joined && onDone(joined.name));
        }}
      >
        <TextField label="Address" value={address} onChange={setAddress} required placeholder="north.example.net:7440" help="Where the other site listens for peers" />
        <TextField label="Code of its invitation" type="password" value={code} onChange={setCode} required help="The other site’s console makes it: Protect a volume, The original is here." />
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
  const [when, setWhen] = useState('rpo');
  const [time, setTime] = useState('1m');
  const { ask, asking, failure } = useAsk();
  // Whoever copies it from the other console has the site's name before it.
  const from = source.includes(':') ? source : `${peer}:${source}`;
  const volume = name || source.split('/')[1] || '';
  const destination = `${pool}/${volume}`;
  const seconds = readDuration(time);
  const isRight = /^[^:/]+:[^:/]+\/[^/]+$/.test(from) && volume !== '' && pool !== '' && (when === 'asked' || typeof seconds === 'number');
  const make = async () => {
    const body = {
      source: from,
      destination,
      ...(when === 'rpo' && { rpo_seconds: seconds as number }),
      ...(when === 'every' && { every_seconds: seconds as number }),
    };
    const done = await ask(async () => {
      await answered(api.POST('/api/v1/mirrors', { body }));
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
      <SelectField
        label="Updates begin"
        value={when}
        onChange={setWhen}
        options={[
          { value: 'rpo', label: 'so that an objective is kept' },
          { value: 'every', label: 'at an interval' },
          { value: 'asked', label: 'when asked for' },
        ]}
      />
      {when !== 'asked' && (
        <TextField
          label={when === 'rpo' ? 'The replica is at most this old' : 'Every'}
          value={time}
          onChange={setTime}
          required
          wrong={typeof seconds === 'string' ? seconds : null}
          help={when === 'rpo' ? 'Recovery point objective: what is written later than that may be lost with the site.' : undefined}
        />
      )}
      {isRight && (
        <p>
          {destination} becomes a read-only replica of {from}.{' '}
          {when !== 'asked' && typeof seconds === 'number' && (when === 'rpo' ? `It is kept at most ${duration(seconds)} old.` : `It is updated every ${duration(seconds)}.`)} All
          data of the volume travels once, compressed; afterwards only what changes.
        </p>
      )}
      <FailureNote error={failure} />
      <div>
        <Button type="submit" isDisabled={!isRight || asking} isLoading={asking}>
          Make the mirror and begin the first copy
        </Button>
      </div>
    </Form>
  );
}
