export interface Step {
  title: string;
  /** What it came to; null: it is not done yet. */
  done: React.ReactNode | null;
  form: React.ReactNode;
}

/** Steps one after the other: what is done, the form of what is next, and what comes later. */
export function Steps({ steps, after }: { steps: Step[]; after: React.ReactNode }) {
  const now = steps.findIndex((step) => step.done === null);
  return (
    <ol className="steps">
      {steps.map((step, index) => {
        const state = step.done !== null ? 'done' : index === now ? 'now' : 'later';
        return (
          <li key={step.title} className={`step step-${state}`} aria-current={state === 'now' ? 'step' : undefined}>
            <div className="step-sign" aria-hidden="true">
              {state === 'done' ? '✓' : index + 1}
            </div>
            <div>
              <h2>{step.title}</h2>
              {state === 'done' && <div>{step.done}</div>}
              {state === 'now' && step.form}
            </div>
          </li>
        );
      })}
      {now === -1 && (
        <li className="step step-done">
          <div className="step-sign" aria-hidden="true">
            ✓
          </div>
          <div>{after}</div>
        </li>
      )}
    </ol>
  );
}
