import { Alert } from '@patternfly/react-core';
import { Failure } from '../api/client';
import { sentence } from './sentence';

/** What went wrong, and what to do about it, as the API says it. */
export function FailureNote({ error, title }: { error: unknown; title?: string }) {
  if (!error) return null;
  const message = sentence(error instanceof Error ? error.message : String(error));
  const hint = error instanceof Failure ? error.hint : undefined;
  // It was taken, and waits: no failure.
  const waits = error instanceof Failure && error.code === 'delayed';
  return (
    <div role="alert">
      <Alert isInline variant={waits ? 'info' : 'danger'} title={title ?? message} className="gap-below">
        {title && <p>{message}</p>}
        {hint && <p>{sentence(hint)}</p>}
      </Alert>
    </div>
  );
}
