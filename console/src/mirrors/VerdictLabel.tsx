import { useLostSince } from '../api/heard';
import type { SeenMirror } from '../api/queries';
import { Bar } from '../words/Bar';
import { age } from '../words/quantities';
import { Status } from '../words/Status';
import { useNow } from '../words/Time';
import { judge, lagOf } from './verdict';

export function useJudge() {
  const now = useNow();
  const lost = useLostSince() !== null;
  return (mirror: SeenMirror) => judge(mirror, now, lost);
}

export function VerdictLabel({ mirror }: { mirror: SeenMirror }) {
  const { tone, word, why } = useJudge()(mirror);
  return (
    <Status tone={tone} title={why}>
      {word}
    </Status>
  );
}

/** How old the replica is, against how old it may be. */
export function Lag({ mirror }: { mirror: SeenMirror }) {
  const now = useNow();
  const lost = useLostSince() !== null;
  const lag = lagOf(mirror, now);
  if (lag === null) return <>–</>;
  const objective = mirror.objective_seconds;
  if (!objective) return <span className="number">{age(lag)}</span>;
  const { tone } = judge(mirror, now, lost);
  return <Bar part={lag} whole={objective} tone={tone} label={`${age(lag)} of ${age(objective)}`} />;
}
