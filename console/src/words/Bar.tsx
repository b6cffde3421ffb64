/** How much of something there is, as a bar with words beside it. */
export function Bar({ part, whole, label, tone = 'neutral' }: { part: number; whole: number; label: string; tone?: string }) {
  const share = whole > 0 ? Math.min(100, Math.max(0, (part / whole) * 100)) : 0;
  return (
    <span className="bar-line">
      <span className={`bar bar-${tone}`} role="img" aria-label={`${label}: ${Math.round(share)} %`}>
        <span style={{ width: `${share}%` }} />
      </span>
      <span className="number">{label}</span>
    </span>
  );
}
