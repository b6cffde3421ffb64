import { Link } from 'react-router-dom';
import { useLostSince } from '../api/heard';
import type { Alarm, Schemas } from '../api/client';
import type { SeenMirror } from '../api/queries';
import { useJudge } from '../mirrors/VerdictLabel';
import { needsPerson, pathOf, urgency } from '../mirrors/verdict';
import { sentence } from '../words/sentence';
import { Status, type Tone } from '../words/Status';

const SHOWN = 8;

interface Item {
  what: React.ReactNode;
  tone: Tone;
  order: number;
  why: string;
  hint?: string;
}

/** The daemon's own warnings name its alarms, too, which are here already. */
const isAlarm = (warning: string) => /^alarm \d+ \(/.test(warning);

/** What is wrong and does not mend itself: by what it is about, what is graver first. */
export function NeedsPerson({ site, mirrors, alarms }: { site: Schemas['SiteStatus']; mirrors: SeenMirror[]; alarms: Alarm[] }) {
  const judge = useJudge();
  const lost = useLostSince() !== null;
  const items = new Map<string, Item>();
  const note = (about: string, what: React.ReactNode, tone: Tone, order: number, why: string, hint?: string) => {
    // Of several about one thing the graver one says it all: a mirror that is late was at risk before.
    if (order < (items.get(about)?.order ?? Infinity)) items.set(about, { what, tone, order, why, hint });
  };
  for (const mirror of mirrors) {
    const { verdict, tone, why } = judge(mirror);
    if (needsPerson(verdict)) note(mirror.name, <Link to={pathOf(mirror)}>{mirror.name}</Link>, tone, 10 + urgency(verdict), why);
  }
  for (const alarm of alarms) {
    if (alarm.acknowledged) continue;
    const isCritical = alarm.severity === 'critical';
    const page = alarm.subject.includes('/') ? `/mirrors/${alarm.subject}` : '/alarms';
    note(alarm.subject, <Link to={page}>{alarm.subject}</Link>, isCritical ? 'danger' : 'warning', isCritical ? 0 : 50, alarm.message, alarm.hint);
  }
  for (const reason of site.reasons ?? []) note(reason, 'Site', 'danger', 30, reason);
  for (const warning of site.warnings ?? []) if (!isAlarm(warning)) note(warning, 'Site', 'warning', 60, warning);

  const sorted = [...items.entries()].sort(([, a], [, b]) => a.order - b.order);
  if (sorted.length === 0) {
    return lost ? <p>Not known: the connection to the daemon is lost.</p> : <p>Nothing, as far as this site knows.</p>;
  }
  return (
    <>
      <ul className="needs">
        {sorted.slice(0, SHOWN).map(([about, item]) => (
          <li key={about}>
            <Status tone={item.tone}>{item.what}</Status>
            <p>{sentence(item.why)}</p>
            {item.hint && <p className="quiet">{sentence(item.hint)}</p>}
          </li>
        ))}
      </ul>
      {sorted.length > SHOWN && <p className="quiet">And {sorted.length - SHOWN} more: see mirrors and alarms.</p>}
    </>
  );
}
