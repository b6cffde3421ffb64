import { Button, Checkbox, Form } from '@patternfly/react-core';
import { useState } from 'react';
import { answered, api } from '../api/client';
import { useSite } from '../api/queries';
import { TextField } from '../forms/fields';
import { useAsk } from '../forms/useAsk';
import { FailureNote } from '../words/FailureNote';
import { readSize } from '../words/quantities';

/** A pool: a file of its own, or a raw device. */
export function PoolForm({ onDone }: { onDone: (name: string) => void }) {
  const site = useSite();
  const [name, setName] = useState('tank');
  const [path, setPath] = useState('');
  const [size, setSize] = useState('20G');
  const [overwrite, setOverwrite] = useState(false);
  const { ask, asking, failure } = useAsk();
  const where = path || (site.data ? `${site.data.data_dir}/${name}.pool` : '');
  const isDevice = where.startsWith('/dev/');
  const bytes = readSize(size);
  const may = name !== '' && where.startsWith('/') && (isDevice || typeof bytes === 'number');
  return (
    <Form
      onSubmit={(event) => {
        event.preventDefault();
        const body = { name, path: where, ...(!isDevice && { size_bytes: bytes as number }), ...(isDevice && { overwrite }) };
        if (may) void ask(() => answered(api.POST('/api/v1/pools', { body }))).then((done) => done && onDone(name));
      }}
    >
      <TextField label="Name of the pool" value={name} onChange={setName} required />
      <TextField label="File or raw device" value={where} onChange={setPath} required help="A file that is not there yet, or a device such as /dev/sdb; of the site’s machine" />
      {isDevice ? (
        <Checkbox id="overwrite" label="What is on the device may be destroyed" description="Without, a device that is not blank is refused." isChecked={overwrite} onChange={(_, on) => setOverwrite(on)} />
      ) : (
        <TextField label="Size of the pool" value={size} onChange={setSize} required help="It takes space as it fills. It can grow later." wrong={typeof bytes === 'string' ? bytes : null} />
      )}
      <FailureNote error={failure} />
      <div>
        <Button type="submit" isDisabled={!may || asking} isLoading={asking}>
          Make the pool
        </Button>
      </div>
    </Form>
  );
}
