/** How something is. Green is kept for what was measured or compared. */
export type Tone = 'proven' | 'busy' | 'neutral' | 'warning' | 'danger';

const SIGNS: Record<Tone, string> = { proven: '✓', busy: '↻', neutral: '○', warning: '!', danger: '✕' };

/** A state in words, with a sign and a colour that say the same. */
export function Status({ tone, children, title }: { tone: Tone; children: React.ReactNode; title?: string }) {
  return (
    <span className={`status status-${tone}`} title={title}>
      <span className="status-sign" aria-hidden="true">
        {SIGNS[tone]}
      </span>
      <span>{children}</span>
    </span>
  );
}
