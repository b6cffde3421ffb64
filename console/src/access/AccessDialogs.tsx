import { useState } from 'react';
import { answered, api, planned, type AccessRole, type Schemas } from '../api/client';
import { SelectField, TextField } from '../forms/fields';
import { ActionDialog } from '../plan/ActionDialog';
import { CopyLine } from '../words/CopyLine';
import { readDuration } from '../words/quantities';

type Account = Schemas['Account'];
type Token = Schemas['Token'];

const ROLES: { value: AccessRole; label: string }[] = [
  { value: 'viewer', label: 'viewer: looks' },
  { value: 'operator', label: 'operator: runs mirrors, volumes and snapshots' },
  { value: 'administrator', label: 'administrator: everything' },
];

const MAY: Record<AccessRole, string> = {
  viewer: 'may see everything, and change nothing',
  operator: 'may run mirrors, volumes and snapshots, and take no data away',
  administrator: 'may do everything, also take data away and let others in',
};

function RoleField({ role, onChange }: { role: AccessRole; onChange: (role: AccessRole) => void }) {
  return <SelectField label="Role" value={role} onChange={(chosen) => onChange(chosen as AccessRole)} options={ROLES} />;
}

const [SHORTEST, LONGEST] = [12, 256];

/** Twice, since nobody sees what is typed. */
function usePassword() {
  const [password, setPassword] = useState('');
  const [again, setAgain] = useState('');
  const length = [...password].length;
  const wrong = password && (length < SHORTEST || length > LONGEST) ? `It has ${SHORTEST} to ${LONGEST} characters.` : null;
  const differs = again && again !== password ? 'The two are not the same.' : null;
  const fields = (label: string, help?: string) => (
    <>
      <TextField label={label} type="password" autoComplete="new-password" value={password} onChange={setPassword} wrong={wrong} help={help ?? `${SHORTEST} to ${LONGEST} characters`} />
      <TextField label="The password again" type="password" autoComplete="new-password" value={again} onChange={setAgain} wrong={differs} />
    </>
  );
  return { password, isRight: !wrong && again === password, fields };
}

export function CreateAccount({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [role, setRole] = useState<AccessRole>('viewer');
  const { password, isRight, fields } = usePassword();
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Make an account',
        verb: 'Make it',
        given: name !== '' && password !== '' && isRight && `${name} ${role}`,
        fields: (
          <>
            <TextField label="Name" value={name} onChange={setName} required placeholder="ann" />
            <RoleField role={role} onChange={setRole} />
            {fields('Password')}
          </>
        ),
        plan: () => Promise.resolve({ would: [`Whoever logs in as ${name} with this password ${MAY[role]}.`] }),
        run: () => answered(api.POST('/api/v1/accounts', { body: { name, role, password } })),
      }}
    />
  );
}

export function ChangeAccount({ account, isOwn, onClose }: { account: Account; isOwn: boolean; onClose: () => void }) {
  const [role, setRole] = useState<AccessRole>(account.role);
  const { password, isRight, fields } = usePassword();
  const body: Schemas['SetAccount'] = { ...(role !== account.role && { role }), ...(password && { password }) };
  const would = [
    body.role && `${account.name} ${MAY[role]}.`,
    body.password && 'The old password is good no more.',
    isOwn ? 'You are logged out, here and wherever else you are logged in.' : 'Whoever is logged in by this account is logged out.',
  ].filter((line): line is string => Boolean(line));
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Change the account ${account.name}`,
        verb: 'Change',
        given: isRight && Object.keys(body).length > 0 && `${role} ${Boolean(password)}`,
        fields: (
          <>
            <RoleField role={role} onChange={setRole} />
            {fields('New password', 'Left empty: it stays as it is.')}
          </>
        ),
        plan: () => Promise.resolve({ would }),
        run: () => answered(api.POST('/api/v1/accounts/{account}/set', { params: { path: { account: account.name } }, body })),
      }}
    />
  );
}

export function RemoveAccount({ account, onClose }: { account: Account; onClose: () => void }) {
  const path = { account: account.name };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Remove the account ${account.name}`,
        verb: 'Remove',
        typed: account.name,
        plan: () => planned(api.DELETE('/api/v1/accounts/{account}', { params: { path, query: { plan: true } } })),
        run: () => answered(api.DELETE('/api/v1/accounts/{account}', { params: { path } })),
      }}
    />
  );
}

export function CreateToken({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [role, setRole] = useState<AccessRole>('viewer');
  const [valid, setValid] = useState('90d');
  const seconds = readDuration(valid);
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: 'Make a token',
        verb: 'Make it',
        given: name !== '' && typeof seconds === 'number' && `${name} ${role} ${seconds}`,
        fields: (
          <>
            <TextField label="Name" value={name} onChange={setName} required placeholder="monitoring" />
            <RoleField role={role} onChange={setRole} />
            <TextField label="Good for" value={valid} onChange={setValid} help="90d, 12h; at most 3650d" wrong={typeof seconds === 'string' ? seconds : null} />
          </>
        ),
        plan: () => Promise.resolve({ would: [`Whoever has the token ${MAY[role]}, for ${valid}.`, 'It is shown once, afterwards.'] }),
        run: () => answered(api.POST('/api/v1/tokens', { body: { name, role, valid_seconds: seconds as number } })),
        done: (answer) => {
          const made = answer as Schemas['CreatedToken'];
          return (
            <>
              <p className="gap-below">Treat it as a password. It is shown this once: the site keeps only its hash.</p>
              <CopyLine label={`The token ${made.name}`} text={made.secret} />
              <CopyLine label="A program sends it along as a header" text={`Authorization: Bearer ${made.secret}`} />
            </>
          );
        },
      }}
    />
  );
}

export function RevokeToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const path = { token: token.name };
  return (
    <ActionDialog
      onClose={onClose}
      action={{
        title: `Revoke the token ${token.name}`,
        verb: 'Revoke',
        typed: token.name,
        plan: () => planned(api.DELETE('/api/v1/tokens/{token}', { params: { path, query: { plan: true } } })),
        run: () => answered(api.DELETE('/api/v1/tokens/{token}', { params: { path } })),
      }}
    />
  );
}
