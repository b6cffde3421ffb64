import type { Plan, Snapshot } from '../api/client';
import type { SeenMirror } from '../api/queries';

/** A mirror of a group, and the snapshots of its replica. */
export interface Member {
  mirror: SeenMirror;
  snapshots: Snapshot[];
}

/** A moment that all members have. */
export interface Instant {
  at: string;
  /** What it is called in each member, in their order. */
  names: string[];
}

/** The mirrors of this one's group that have a version, itself among them; none: it is in no group, or alone in it. */
export function groupOf(mirror: SeenMirror, all: SeenMirror[]): SeenMirror[] {
  if (!mirror.group) return [];
  const members = all.filter(({ role, group, state }) => role === 'destination' && group === mirror.group && state !== 'uninitialized' && state !== 'initializing');
  return members.length > 1 ? members : [];
}

const isBrokenOff = ({ mirror }: Member) => mirror.state === 'broken-off';

/** Those that are left to be broken off. */
export const left = (members: Member[]) => members.filter((member) => !isBrokenOff(member));

/** Which snapshots of two members are of one moment: a name can be given again; what mirrors took is named by each. */
function isSame(a: Snapshot, b: Snapshot): boolean {
  const areMirrors = a.made_by !== 'person' && b.made_by !== 'person';
  return a.created_at === b.created_at && (a.name === b.name || areMirrors);
}

/** The moments that all members have, the newest first; of a group that is broken off in part only the one that decided it. A sentence: none. */
export function instants(members: Member[]): Instant[] | string {
  const shown = members.filter(isBrokenOff).map(({ mirror, snapshots }) => snapshots.find(({ name }) => name === mirror.current_snapshot)?.created_at);
  if (new Set(shown).size > 1) return 'Some of them are broken off already, at different points.';
  const decided = shown[0];
  const [first, ...rest] = members;
  const found = (first?.snapshots ?? []).flatMap((snapshot): Instant[] => {
    if (snapshot.on_main_line === false || (decided !== undefined && snapshot.created_at !== decided)) return [];
    const names = [snapshot.name];
    for (const member of rest) {
      const same = member.snapshots.find((other) => other.on_main_line !== false && isSame(other, snapshot));
      if (!same) return [];
      names.push(same.name);
    }
    return [{ at: snapshot.created_at, names }];
  });
  if (found.length === 0) return decided === undefined ? 'Its mirrors have no snapshot of one moment in common. An update brings all of them to one moment.' : 'One is broken off already, and not all of the others have a snapshot of that moment.';
  return found.sort((a, b) => b.at.localeCompare(a.at));
}

const sum = (of: (number | null | undefined)[]) => of.reduce<number | null>((all, each) => (all === null || each === null || each === undefined ? null : all + each), 0);

/** The plans of several requests, as one. */
export function together(action: string, headline: string, plans: [string, Plan][]): Plan {
  const each = plans.map(([, plan]) => plan);
  const named = (texts: (plan: Plan) => string[]) => plans.flatMap(([name, plan]) => texts(plan).map((text) => (text.includes(name) ? text : `${name}: ${text}`)));
  const refused = plans.find(([, plan]) => plan.refused);
  const kept = plans.flatMap(([name, plan]) => (plan.kept_as ? [`${name}: what hosts would not see any more stays as ${plan.kept_as}`] : []));
  return {
    action,
    would: [headline, ...named(({ would }) => would), ...kept],
    lost: named(({ lost }) => lost),
    lost_blocks: sum(each.map(({ lost_blocks }) => lost_blocks)),
    lost_bytes: sum(each.map(({ lost_bytes }) => lost_bytes)),
    lost_seconds: Math.max(0, ...each.map(({ lost_seconds }) => lost_seconds ?? 0)),
    refused: refused ? `${refused[0]}: ${refused[1].refused}` : null,
  };
}
