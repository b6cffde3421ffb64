import { Form } from '@patternfly/react-core';
import { useState } from 'react';
import { SelectField, TextField } from '../forms/fields';
import { usePeers } from '../api/queries';
import { PageFrame, Panel } from '../shell/PageFrame';
import { Facts } from '../words/Facts';
import { duration, readSize, size } from '../words/quantities';
import { bytesPerDay, rateOfOneConnection, rateOfWindow, secondsFor, windowFor } from './line';

const UNITS = { '1e3': 'kb/s', '1e6': 'Mb/s', '1e9': 'Gb/s' };

export function bits(rate: number): string {
  if (rate >= 1e9) return `${(rate / 1e9).toFixed(2)} Gb/s`;
  if (rate >= 1e6) return `${(rate / 1e6).toFixed(1)} Mb/s`;
  return `${(rate / 1e3).toFixed(0)} kb/s`;
}

const positive = (text: string) => (Number(text) > 0 ? Number(text) : null);

export default function Calculator() {
  const peers = usePeers();
  const [rate, setRate] = useState('100');
  const [unit, setUnit] = useState('1e6');
  const [rtt, setRtt] = useState('50');
  const [loss, setLoss] = useState('0.1');
  const [window, setWindow] = useState('64K');
  const [changed, setChanged] = useState('10G');
  const [part, setPart] = useState('50');

  const rateValue = positive(rate);
  const rttValue = positive(rtt);
  const lossValue = Number(loss) >= 0 && Number(loss) < 100 && loss !== '' ? Number(loss) / 100 : null;
  const windowBytes = readSize(window);
  const changedBytes = readSize(changed);
  const partValue = positive(part);
  const line =
    rateValue !== null && rttValue !== null && lossValue !== null
      ? { rateBits: rateValue * Number(unit), rttSeconds: rttValue / 1000, loss: lossValue }
      : null;
  const known = (peers.data ?? []).filter((peer) => peer.rtt_seconds);

  return (
    <PageFrame title="Window and bandwidth">
      <div className="two-columns">
        <Panel title="The line">
          <Form onSubmit={(event) => event.preventDefault()}>
            <TextField label="Rate" type="number" value={rate} onChange={setRate} wrong={rateValue === null ? 'Write a number above zero.' : null} />
            <SelectField label="Unit of the rate" value={unit} onChange={setUnit} options={Object.entries(UNITS).map(([value, label]) => ({ value, label }))} />
            <TextField label="RTT, milliseconds" type="number" value={rtt} onChange={setRtt} wrong={rttValue === null ? 'Write a number above zero.' : null} />
            {known.length > 0 && (
              <SelectField
                label="RTT as measured with a peer"
                value=""
                onChange={(value) => value && setRtt(value)}
                options={[{ value: '', label: 'Take one over' }, ...known.map((peer) => ({ value: ((peer.rtt_seconds ?? 0) * 1000).toFixed(2), label: `${peer.name}: ${((peer.rtt_seconds ?? 0) * 1000).toFixed(2)} ms` }))]}
              />
            )}
            <TextField label="Loss, percent of packets" type="number" value={loss} onChange={setLoss} wrong={lossValue === null ? 'Write a number from 0 to 100.' : null} />
            <TextField label="A fixed window" value={window} onChange={setWindow} wrong={typeof windowBytes === 'string' ? windowBytes : null} />
            <TextField label="Changed data" value={changed} onChange={setChanged} wrong={typeof changedBytes === 'string' ? changedBytes : null} />
            <TextField label="What of it travels, percent" type="number" value={part} onChange={setPart} help="Your own mirrors say it: the overview has what was saved." wrong={partValue === null ? 'Write a number above zero.' : null} />
          </Form>
        </Panel>
        <Panel title="What it comes to">
          {line ? (
            <div aria-live="polite">
              <Facts
                facts={[
                  ['Window that fills the line', size(windowFor(line))],
                  ['A window of that size reaches', typeof windowBytes === 'number' && windowBytes > 0 ? bits(Math.min(line.rateBits, rateOfWindow(windowBytes, line.rttSeconds))) : null],
                  ['One connection at this loss', bits(rateOfOneConnection(line))],
                  ['Connections that fill it', String(Math.max(1, Math.ceil(line.rateBits / rateOfOneConnection(line))))],
                  ['The changed data takes', typeof changedBytes === 'number' && partValue !== null ? duration(secondsFor(changedBytes, partValue / 100, line)) : null],
                  ['May change in a day', partValue !== null ? size(bytesPerDay(partValue / 100, line)) : null],
                ]}
              />
              <p className="quiet">
                One connection: by the formula of Mathis and others, for packets of 1500 bytes and a congestion control that takes every loss for
                congestion. farside opens as many as the line needs, and keeps it 95 % full in this reckoning.
              </p>
            </div>
          ) : (
            <p>Fill in the line.</p>
          )}
        </Panel>
      </div>
    </PageFrame>
  );
}
