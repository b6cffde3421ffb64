import { Button } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useContext, useState } from 'react';
import { answered, api, type Schemas } from '../api/client';
import { SessionContext, useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { count } from '../words/quantities';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';
import { ChangeAccount, CreateAccount, CreateToken, RemoveAccount, RevokeToken } from './AccessDialogs';

type Account = Schemas['Account'];
type Token = Schemas['Token'];

export default function Access() {
  const may = useMay();
  return (
    <PageFrame title="Accounts and tokens">
      {may('administrator') ? (
        <>
          <Accounts />
          <Tokens />
        </>
      ) : (
        <p>Only administrators of this site may see that.</p>
      )}
    </PageFrame>
  );
}

function Accounts() {
  const session = useContext(SessionContext);
  const accounts = useQuery({ queryKey: ['accounts'], queryFn: () => answered(api.GET('/api/v1/accounts')), refetchInterval: 15_000 });
  const [asked, setAsked] = useState<{ change?: Account; remove?: Account } | null>(null);
  const isOwn = (account: Account) => session?.who === `account ${account.name}`;
  const columns: Column<Account>[] = [
    { title: 'Account', width: 24, value: (account) => account.name, cell: (account) => `${account.name}${isOwn(account) ? ' (you)' : ''}` },
    { title: 'Role', width: 16, value: (account) => account.role, cell: (account) => account.role },
    { title: 'Sessions', width: 12, right: true, value: (account) => account.sessions, cell: (account) => count(account.sessions) },
    {
      title: 'Made',
      width: 28,
      value: (account) => account.created_at,
      cell: (account) => (
        <>
          <Ago at={account.created_at} />
          <div className="quiet">by {account.created_by}</div>
        </>
      ),
    },
    {
      title: 'Actions',
      width: 20,
      cell: (account) => (
        <span className="button-row">
          <Button variant="link" isInline onClick={() => setAsked({ change: account })} aria-label={`Change ${account.name}`}>
            Change
          </Button>
          <Button variant="link" isInline isDanger onClick={() => setAsked({ remove: account })} aria-label={`Remove ${account.name}`}>
            Remove
          </Button>
        </span>
      ),
    },
  ];
  return (
    <Panel
      title="Accounts of people"
      actions={
        <Button size="sm" variant="secondary" onClick={() => setAsked({})}>
          Make an account
        </Button>
      }
    >
      <Loaded query={accounts}>
        {(all) => <DataTable label="Accounts" rows={all} columns={columns} rowKey={(account) => account.name} empty="There are no accounts." />}
      </Loaded>
      {asked &&
        (asked.change ? (
          <ChangeAccount account={asked.change} isOwn={isOwn(asked.change)} onClose={() => setAsked(null)} />
        ) : asked.remove ? (
          <RemoveAccount account={asked.remove} onClose={() => setAsked(null)} />
        ) : (
          <CreateAccount onClose={() => setAsked(null)} />
        ))}
    </Panel>
  );
}

function Tokens() {
  const tokens = useQuery({ queryKey: ['tokens'], queryFn: () => answered(api.GET('/api/v1/tokens')), refetchInterval: 15_000 });
  const [asked, setAsked] = useState<{ revoke?: Token } | null>(null);
  const columns: Column<Token>[] = [
    { title: 'Token', width: 20, value: (token) => token.name, cell: (token) => token.name },
    { title: 'Role', width: 14, value: (token) => token.role, cell: (token) => token.role },
    {
      title: 'Good until',
      width: 18,
      value: (token) => token.expires_at,
      cell: (token) => (token.expired ? <Status tone="danger">It has ended</Status> : token.expires_at.slice(0, 16).replace('T', ' ') + ' UTC'),
    },
    { title: 'Used last', width: 14, value: (token) => token.last_used_at, cell: (token) => (token.last_used_at ? <Ago at={token.last_used_at} /> : 'never') },
    {
      title: 'Made',
      width: 20,
      value: (token) => token.created_at,
      cell: (token) => (
        <>
          <Ago at={token.created_at} />
          <div className="quiet">by {token.created_by}</div>
        </>
      ),
    },
    {
      title: 'Actions',
      width: 14,
      cell: (token) => (
        <Button variant="link" isInline isDanger onClick={() => setAsked({ revoke: token })} aria-label={`Revoke ${token.name}`}>
          Revoke
        </Button>
      ),
    },
  ];
  return (
    <Panel
      title="Tokens of programs"
      actions={
        <Button size="sm" variant="secondary" onClick={() => setAsked({})}>
          Make a token
        </Button>
      }
    >
      <Loaded query={tokens}>
        {(all) => <DataTable label="Tokens" rows={all} columns={columns} rowKey={(token) => token.name} empty="There are no tokens." />}
      </Loaded>
      {asked && (asked.revoke ? <RevokeToken token={asked.revoke} onClose={() => setAsked(null)} /> : <CreateToken onClose={() => setAsked(null)} />)}
    </Panel>
  );
}
