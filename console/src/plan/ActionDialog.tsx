import { Alert, Button, Form, Modal, ModalBody, ModalFooter, ModalHeader, Skeleton } from '@patternfly/react-core';
import { useQuery, useQueryClient, type QueryKey } from '@tanstack/react-query';
import { useState } from 'react';
import { useNavigate } from 'react-router-dom';
import type { Plan } from '../api/client';
import { nowGone, readAgain } from '../api/queries';
import { TextField } from '../forms/fields';
import { FailureNote } from '../words/FailureNote';
import { duration, size } from '../words/quantities';
import { sentence } from '../words/sentence';

/** What would happen: from the API where it has a plan for it, else what is known here. */
export type Foreseen = Plan | { would: string[]; more?: React.ReactNode };

export interface Action {
  title: string;
  /** The word on the button that runs it. */
  verb: string;
  /** Reads the plan; asked again whenever `given` changes. */
  plan: () => Promise<Foreseen>;
  run: () => Promise<unknown>;
  /** Sentences on what it will cost. */
  cost?: string[];
  /** It takes something away: this name has to be typed. */
  typed?: string;
  /** Fields to fill in. */
  fields?: React.ReactNode;
  /** What is filled in, as a key; false: it cannot be run yet. */
  given?: string | false;
  /** Where one goes once it is done, since what the page shows is there no more; and what the page has asked for it by. */
  leaves?: { to: string; keys: QueryKey[] };
  /** What is said when it is done, if more than that; null: nothing, after all. */
  done?: (answer: unknown) => React.ReactNode;
}

/** An action: what it asks for, what it would do and cost, and only then the button. */
export function ActionDialog({ action, onClose }: { action: Action; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const [running, setRunning] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const [answer, setAnswer] = useState<{ is: unknown } | null>(null);
  const isReady = action.given !== false;
  const plan = useQuery({
    queryKey: ['plan', action.title, action.given ?? ''],
    queryFn: action.plan,
    enabled: isReady && answer === null && !running,
    staleTime: 0,
    gcTime: 0,
    retry: false,
  });
  const refused = plan.data && 'refused' in plan.data ? plan.data.refused : null;
  const may = isReady && plan.data !== undefined && !refused && (!action.typed || typed === action.typed);

  const run = async () => {
    setRunning(true);
    setFailure(null);
    try {
      const said = await action.run();
      if (action.leaves) {
        nowGone(client, action.leaves.keys);
        void navigate(action.leaves.to);
      }
      await readAgain(client);
      if (action.done?.(said)) setAnswer({ is: said });
      else onClose();
    } catch (error) {
      setFailure(error);
    } finally {
      setRunning(false);
    }
  };

  return (
    <Modal isOpen variant="medium" onClose={onClose} aria-labelledby="action-title" aria-describedby="action-body">
      <ModalHeader title={action.title} labelId="action-title" />
      <ModalBody id="action-body">
        {answer ? (
          action.done?.(answer.is)
        ) : (
          <Form
            id="action-form"
            onSubmit={(event) => {
              event.preventDefault();
              if (may && !running) void run();
            }}
          >
            {action.fields}
            {isReady && (
              <section aria-label="Plan" aria-live="polite" className="plan">
                <h2>What will happen</h2>
                {plan.error ? <FailureNote error={plan.error} /> : null}
                {plan.data ? <PlanSentences plan={plan.data} /> : plan.error ? null : <Skeleton />}
                {action.cost && action.cost.length > 0 && (
                  <>
                    <h2>What it will cost</h2>
                    <ul>
                      {action.cost.map((line) => (
                        <li key={line}>{line}</li>
                      ))}
                    </ul>
                  </>
                )}
              </section>
            )}
            {action.typed && (
              <TextField
                label={`Type ${action.typed} to confirm`}
                value={typed}
                onChange={setTyped}
                help="So that nobody does this by a slip of the hand."
              />
            )}
            <FailureNote error={failure} />
          </Form>
        )}
      </ModalBody>
      <ModalFooter>
        {answer ? (
          <Button onClick={onClose}>Close</Button>
        ) : (
          <>
            <Button
              type="submit"
              form="action-form"
              variant={action.typed ? 'danger' : 'primary'}
              isDisabled={!may || running}
              isLoading={running}
            >
              {action.verb}
            </Button>
            <Button variant="link" onClick={onClose}>
              Do nothing
            </Button>
          </>
        )}
      </ModalFooter>
    </Modal>
  );
}

function PlanSentences({ plan }: { plan: Foreseen }) {
  if (!('action' in plan)) {
    return (
      <>
        <Sentences of={plan.would} />
        {plan.more}
      </>
    );
  }
  const kept = [
    plan.kept_as && `What hosts would not see any more stays as ${plan.kept_as}`,
    plan.kept_bytes ? `that is ${size(plan.kept_bytes)}` : null,
    plan.kept_seconds ? `of the last ${duration(plan.kept_seconds)}` : null,
  ].filter(Boolean);
  return (
    <>
      {plan.refused && <Alert isInline variant="warning" title="As things stand it would be refused">{sentence(plan.refused)}</Alert>}
      <Sentences of={plan.would} />
      {kept.length > 0 && <p>{kept.join(', ')}.</p>}
      {plan.lost.length > 0 ? (
        <Alert isInline variant="danger" title="Lost for good">
          <Sentences of={plan.lost} />
          {plan.lost_bytes ? <p>{size(plan.lost_bytes)} in all.</p> : null}
          {plan.lost_seconds ? <p>Hosts go back by {duration(plan.lost_seconds)}.</p> : null}
        </Alert>
      ) : (
        !plan.refused && <p className="plan-safe">Nothing is lost for good.</p>
      )}
    </>
  );
}

const Sentences = ({ of }: { of: string[] }) => (
  <ul>
    {of.map((text) => (
      <li key={text}>{sentence(text)}</li>
    ))}
  </ul>
);
