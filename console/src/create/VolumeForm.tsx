import { Button, Form } from '@patternfly/react-core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { answered, api } from '../api/client';
import { usePools } from '../api/queries';
import { SelectField, TextField } from '../forms/fields';
import { useAsk } from '../forms/useAsk';
import { FailureNote } from '../words/FailureNote';
import { readSize, size as inWords } from '../words/quantities';

/** A thin volume in a pool. */
export function VolumeForm({ onDone }: { onDone: (name: string) => void }) {
  const pools = usePools();
  const [chosen, setChosen] = useState('');
  const [name, setName] = useState('');
  const [size, setSize] = useState('10G');
  const { ask, asking, failure } = useAsk();
  const open = pools.data?.filter((pool) => pool.state === 'open') ?? [];
  const pool = chosen || open[0]?.name || '';
  const bytes = readSize(size);
  if (pools.data && open.length === 0) {
    return (
      <p>
        A volume lies in a pool, and there is none here yet. <Link to="/create/pool">Make a pool</Link>
      </p>
    );
  }
  const may = pool !== '' && name !== '' && typeof bytes === 'number';
  return (
    <Form
      onSubmit={(event) => {
        event.preventDefault();
        const full = `${pool}/${name}`;
        if (may) void ask(() => answered(api.POST('/api/v1/volumes', { body: { name: full, size_bytes: bytes } }))).then((done) => done && onDone(full));
      }}
    >
      <SelectField label="Pool" value={pool} onChange={setChosen} options={open.map((each) => ({ value: each.name, label: `${each.name}, ${inWords(each.free_bytes)} left` }))} />
      <TextField label="Name of the volume" value={name} onChange={setName} required placeholder="mail" />
      <TextField label="Size of the volume" value={size} onChange={setSize} required help="It takes space as hosts write to it." wrong={typeof bytes === 'string' ? bytes : null} />
      <FailureNote error={failure} />
      <div>
        <Button type="submit" isDisabled={!may || asking} isLoading={asking}>
          Make the volume
        </Button>
      </div>
    </Form>
  );
}
