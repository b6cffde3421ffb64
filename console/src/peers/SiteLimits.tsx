import { useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';

/** What transfers keep of a processor where hosts become slower for them. */
export const PRECEDENCE: Record<string, string> = {
  high: 'high: transfers keep an eighth of a processor',
  fair: 'fair: transfers keep a half',
  off: 'off: transfers take all they can get',
};

const TRANSFERS_MAX = 16;

/** What all transfers of the site together may take. */
export function SiteLimits({ status, onClose }: { status: Schemas['SiteStatus']; onClose: () => void }) {
  const was = { out: status.throttle_out.rules, in: status.throttle_in.rules, transfers: String(status.transfer_size), hosts: status.host_precedence ?? 'high' };
  const [out, setOut] = useState(was.out);
  const [inward, setInward] = useState(was.in);
  const [transfers, setTransfers] = useState(was.transfers);
  const [hosts, setHosts] = useState(was.hosts);
  const number = /^\d+$/.test(transfers) ? Number(transfers) : 0;
  const wrong = number >= 1 && number <= TRANSFERS_MAX ? null : `It is a number from 1 to ${TRANSFERS_MAX}.`;
  const body: Schemas['SetSite'] = {};
  const would: string[] = [];
  if (out !== was.out) {
    body.throttle_out = out;
    would.push(`What is sent to all peers together is limited by ${out}, at once.`);
  }
  if (inward !== was.in) {
    body.throttle_in = inward;
    would.push(`What all peers together send here is limited by ${inward}, at once.`);
  }
  if (!wrong && number !== status.transfer_size) {
    body.transfer_size = number;
    would.push(`At most ${number} transfers to this site are under way at once. The others wait. Those that run go on.`);
  }
  if (hosts !== was.hosts) {
    body.host_precedence = hosts;
    would.push(`While hosts are slower for the sake of transfers: ${PRECEDENCE[hosts]}.`);
  }
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Limits of the whole site',
        verb: 'Change',
        given: !wrong && would.length > 0 && JSON.stringify(body),
        fields: (
          <>
            <TextField label="Limit of what is sent" value={out} onChange={setOut} help="4MB/s, with times 4MB/s,08:00-18:00=1MB/s, or unlimited" />
            <TextField label="Limit of what is received" value={inward} onChange={setInward} />
            <TextField label="Transfers at once" type="number" value={transfers} onChange={setTransfers} help="Of mirrors whose replica is here" wrong={wrong} />
            <SelectField label="Hosts come first" value={hosts} onChange={setHosts} options={Object.entries(PRECEDENCE).map(([value, label]) => ({ value, label }))} />
          </>
        ),
        plan: () => Promise.resolve({ would }),
        run: () => answered(api.POST('/api/v1/site/set', { body })),
      }}
    />
  );
}
