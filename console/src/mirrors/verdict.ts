import type { Mirror } from '../api/client';
import type { SeenMirror } from '../api/queries';
import type { Tone } from '../words/Status';
import { age } from '../words/quantities';
import { sentence } from '../words/sentence';

/** How a mirror is, in the order of who needs a person first. */
export type Verdict =
  | 'overtaken'
  | 'late'
  | 'broken-off'
  | 'attention'
  | 'empty'
  | 'unknown'
  | 'first-copy'
  | 'no-objective'
  | 'source'
  | 'proven';

export interface Judged {
  verdict: Verdict;
  tone: Tone;
  /** In a word or two. */
  word: string;
  /** Why, a sentence. */
  why: string;
}

/** The age of what the replica shows, now. */
export function lagOf(mirror: SeenMirror, now: number): number | null {
  if (mirror.lag_seconds === null || mirror.lag_seconds === undefined) return null;
  return mirror.lag_seconds + Math.max(0, now - mirror.seen) / 1000;
}

/**
 * Judges a mirror. *Proven* is said only of a replica whose content was compared with its source's when it was published, whose
 * age was measured, and which is within its objective at this moment, while the daemon is heard.
 */
export function judge(mirror: SeenMirror, now: number, lost: boolean): Judged {
  const say = (verdict: Verdict, tone: Tone, word: string, why: string): Judged => ({ verdict, tone, word, why: sentence(why) });
  const overtaken = mirror.overtaken;
  if (overtaken) {
    return say(
      'overtaken',
      'danger',
      'Overtaken',
      overtaken.follows
        ? `The replica was broken off and went on. This volume follows ${overtaken.follows} now.`
        : `The replica was broken off, and hosts may be writing there. ${overtaken.fenced ? 'Hosts cannot write here.' : 'Hosts can still write here, too.'} Decide which one counts.`,
    );
  }
  if (mirror.source_overtaken) {
    return say('overtaken', 'danger', 'Source overtaken', `Hosts went on at ${mirror.source_overtaken.by}: what the source brings is of the old original.`);
  }
  if (mirror.role === 'source') {
    return mirror.why
      ? say('attention', 'warning', 'Held up', mirror.why)
      : say('source', 'neutral', 'Original', 'The replica is at the other site. How old it is, that site knows.');
  }
  if (mirror.state === 'broken-off') {
    return say('broken-off', 'warning', 'Broken off', mirror.why ?? 'Hosts may write here. No updates come until a resync or swap.');
  }
  if (mirror.state === 'uninitialized') return say('empty', 'warning', 'No copy yet', mirror.why ?? 'The first copy has not been asked for.');
  if (mirror.state === 'initializing') {
    return mirror.why
      ? say('attention', 'warning', 'First copy held up', mirror.why)
      : say('first-copy', 'busy', 'First copy', 'The first copy is under way. There is nothing to take over yet.');
  }
  if (lost) return say('unknown', 'neutral', 'Not known', 'The connection to the daemon is lost.');
  // As the daemon's alarms have it: who quiesced it wanted it to get older.
  if (mirror.state === 'quiesced') return say('attention', 'warning', 'Quiesced', 'No transfers begin until it is resumed.');
  const lag = lagOf(mirror, now);
  const objective = mirror.objective_seconds;
  if (lag !== null && objective && lag > objective) {
    return say('late', 'danger', 'Late', `The data is ${age(lag)} old; at most ${age(objective)} was agreed.${mirror.why ? ` ${sentence(mirror.why)}` : ''}`);
  }
  if (mirror.why) return say('attention', 'warning', 'Held up', mirror.why);
  if (lag === null || !mirror.content_root) return say('unknown', 'neutral', 'Not known', 'How old the data is, is not known.');
  if (!objective) return say('no-objective', 'neutral', 'No objective', `The data is ${age(lag)} old. How old it may be, nobody has said.`);
  return say(
    'proven',
    'proven',
    'Within objective',
    `The data is ${age(lag)} old, within ${age(objective)}. Its content root was compared with the source's when it was published.`,
  );
}

const ORDER: Verdict[] = ['overtaken', 'late', 'broken-off', 'attention', 'empty', 'unknown', 'first-copy', 'no-objective', 'source', 'proven'];
export const urgency = (verdict: Verdict) => ORDER.indexOf(verdict);
export const needsPerson = (verdict: Verdict) => urgency(verdict) <= urgency('empty');

/** The page of a mirror. */
export const pathOf = (mirror: Pick<Mirror, 'name'>) => `/mirrors/${mirror.name}`;

/** What it is doing, as the command line has it. */
export function doing(mirror: Mirror): string {
  if (mirror.queue_position) return `queued, ${mirror.queue_position}`;
  const transfer = mirror.transfer;
  if (!transfer) return mirror.state;
  const part = transfer.changed_bytes ? ` ${Math.floor((transfer.done_bytes / transfer.changed_bytes) * 100)} %` : '';
  return `${transfer.kind}: ${transfer.phase}${part}`;
}
