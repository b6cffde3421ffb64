import { Button, Form } from '@patternfly/react-core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answered, api } from '../api/client';
import { becomes } from '../api/session';
import { SITE } from '../api/site';
import { TextField } from '../forms/fields';
import { FailureNote } from '../words/FailureNote';

export default function Login() {
  const client = useQueryClient();
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [failure, setFailure] = useState<unknown>(null);
  const [asking, setAsking] = useState(false);
  const logIn = async (event: React.FormEvent) => {
    event.preventDefault();
    setAsking(true);
    setFailure(null);
    try {
      const who = await answered(api.POST('/api/v1/session', { body: { name, password } }));
      // At another site one may do what its peer was given: that is asked there.
      if (SITE) window.location.reload();
      else becomes(client, who);
    } catch (error) {
      setFailure(error);
      setPassword('');
    } finally {
      setAsking(false);
    }
  };
  return (
    <main className="login">
      <div className="login-box">
        <h1>farside</h1>
        <p>Log in with your account of this site.</p>
        <Form onSubmit={(event) => void logIn(event)}>
          <TextField label="Account" value={name} onChange={setName} required autoComplete="username" />
          <TextField
            label="Password"
            type="password"
            value={password}
            onChange={setPassword}
            required
            autoComplete="current-password"
          />
          <FailureNote error={failure} />
          <Button type="submit" isBlock isDisabled={asking || !name || !password} isLoading={asking}>
            Log in
          </Button>
        </Form>
        <p className="quiet">
          No account yet? At the site itself: <code>farside account create NAME --role administrator</code>
        </p>
      </div>
    </main>
  );
}
