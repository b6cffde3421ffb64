import { Alert } from '@patternfly/react-core';
import { Failure } from '../api/client';

/** What went wrong, and what to do about it, as the API says it. */
export function FailureNote({ error, title }: { error: unknown; title?: string }) {
  if (!error) return null;
  const message = error instanceof Error ? error.message : String(error);
  const hint = error instanceof Failure ? error.hint : undefined;
  return (
    <div role="alert">
      <Alert isInline variant="danger" title={title ?? message} className="gap-below">
        {title && <p>{message}</p>}
        {hint && <p>{hint}</p>}
      </Alert>
    </div>
  );
}
