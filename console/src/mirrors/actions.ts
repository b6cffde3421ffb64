import { answered, api, confirming, parts, planned, type Schemas } from '../api/client';
import type { SeenMirror } from '../api/queries';
import type { Action } from '../plan/ActionDialog';
import { duration, rate, size } from '../words/quantities';
import { lately } from './savings';
import type { TransferRecord } from '../api/client';

export type ActionName =
  | 'initialize'
  | 'update'
  | 'quiesce'
  | 'resume'
  | 'abort'
  | 'break'
  | 'resync'
  | 'swap'
  | 'drill'
  | 'delete'
  | 'set'
  | 'release';

export const LABELS: Record<ActionName, string> = {
  initialize: 'First copy',
  update: 'Update now',
  quiesce: 'Quiesce',
  resume: 'Resume',
  abort: 'Abort transfer',
  break: 'Break (take over)',
  resync: 'Resync',
  swap: 'Swap roles',
  drill: 'Recovery drill',
  set: 'Settings',
  delete: 'Delete mirror',
  release: 'Release',
};

/** What it does, in a line, before it is asked for. */
export const HINTS: Record<ActionName, string> = {
  initialize: 'Brings all data of the original here, once',
  update: 'Brings what has changed at the original since the last update',
  quiesce: 'Holds the updates until they are resumed',
  resume: 'Lets the updates go on',
  abort: 'Ends the transfer that runs; the replica stays as it is',
  break: 'Makes the replica writable, without asking the other site: for the worst day',
  resync: 'Makes this volume follow the other one, from the newest point that both hold',
  swap: 'Changes the roles of both sites, as planned: nothing is lost',
  drill: 'Tries the replica by a writable clone; mirroring goes on',
  set: 'Schedule, objective, retention, and its use of the link',
  delete: 'Ends the mirror; the volume stays',
  release: 'Lets go of what is kept here for the replica, if that one will not come back',
};

export const NEEDS: Record<ActionName, Schemas['AccessRole']> = {
  initialize: 'operator',
  update: 'operator',
  quiesce: 'operator',
  resume: 'operator',
  abort: 'operator',
  break: 'operator',
  resync: 'operator',
  swap: 'operator',
  drill: 'operator',
  set: 'administrator',
  delete: 'administrator',
  release: 'administrator',
};

/** What makes sense for a mirror as it is, what is likely wanted first. What the state forbids the daemon refuses all the same. */
export function possible(mirror: SeenMirror): ActionName[] {
  if (mirror.role === 'source') return mirror.overtaken ? ['resync', 'release'] : ['release'];
  const running = mirror.transfer !== null && mirror.transfer !== undefined;
  switch (mirror.state) {
    case 'uninitialized':
      return ['initialize', 'set', 'delete'];
    case 'initializing':
      return [running ? 'abort' : 'initialize', 'quiesce', 'set', 'delete'];
    case 'broken-off':
      return ['resync', 'set', 'delete'];
    case 'quiesced':
      return ['resume', 'break', 'swap', 'drill', 'set', 'delete'];
    default:
      return [...(running ? [] : (['update'] as const)), 'break', 'swap', 'drill', ...(running ? (['abort'] as const) : []), 'quiesce', 'set', 'delete'];
  }
}

/** The peer, where a mirror names `PEER:POOL/VOL`. */
export const peerOf = (mirror: SeenMirror) => (mirror.role === 'destination' ? mirror.source : mirror.destination).split(':')[0]!;

const plain = (...would: string[]) => () => Promise.resolve({ would });

function updateCost(history: TransferRecord[], what: string): string[] {
  const mean = lately(history);
  if (!mean) return ['No update has ended yet: what one costs is not known.'];
  return [`${what} took ${size(mean.wire)} on the wire and ${duration(mean.seconds)} of late (${mean.count === 1 ? 'the last update' : `mean of the last ${mean.count} updates`}).`];
}

/** Actions that ask for nothing more than to be read and agreed to. The others have a dialog of their own. */
export function simpleAction(name: ActionName, mirror: SeenMirror, history: TransferRecord[]): Action | null {
  const path = parts(mirror.name);
  const params = { path };
  const dry = { path, query: { plan: true } };
  const body: Schemas['StartTransfer'] = {};
  switch (name) {
    case 'initialize':
      return {
        title: `First copy of ${mirror.source} to ${mirror.name}`,
        verb: 'Begin the first copy',
        plan: plain(
          `${peerOf(mirror)} takes a snapshot of its volume. Hosts there go on as before.`,
          'All that it holds is brought here with its snapshots, compressed. What this site has already does not travel.',
          'A cut costs nothing that has arrived: the transfer goes on where it was.',
          `${mirror.name} can be taken over once all has been compared and published.`,
        ),
        cost: [
          'All data of the volume travels once, less what compression and known data save. How much that is, the source knows once the transfer has begun.',
          mirror.throttle ? `The mirror may use ${rate(mirror.throttle)} now.` : 'The mirror has no limit of its own.',
        ],
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/initialize', { params, body })),
      };
    case 'update':
      return {
        title: `Update ${mirror.name} now`,
        verb: 'Update',
        plan: plain(
          `${peerOf(mirror)} takes a snapshot and compares it with ${mirror.base_snapshot ?? 'the last one that both sites hold'}, by metadata.`,
          'Only what changed travels. The replica moves to it in one step, once its content root equals the source’s.',
        ),
        cost: updateCost(history, 'An update'),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/update', { params, body })),
      };
    case 'quiesce':
      return {
        title: `Quiesce ${mirror.name}`,
        verb: 'Quiesce',
        plan: plain(
          'No transfers of this mirror begin until it is resumed. One that runs is let finish.',
          'The replica keeps what it shows, and gets older.',
        ),
        cost: ['Nothing on the link. The source keeps what the next update needs: what hosts replace there stays in its pool.'],
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/quiesce', { params })),
      };
    case 'resume':
      return {
        title: `Resume ${mirror.name}`,
        verb: 'Resume',
        plan: plain('Transfers begin again, by the schedule.'),
        cost: updateCost(history, 'An update'),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/resume', { params })),
      };
    case 'abort':
      return {
        title: `Abort the transfer of ${mirror.name}`,
        verb: 'Abort',
        plan: plain(
          'The transfer that runs, or waits, is ended. The replica stays as it is.',
          'What has arrived is kept, and does not travel again.',
        ),
        cost: ['Nothing. The replica gets older until the next transfer.'],
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/abort', { params })),
      };
    case 'swap':
      return {
        title: `Swap the roles of ${mirror.source} and ${mirror.name}`,
        verb: 'Swap',
        plan: () => planned(api.POST('/api/v1/mirrors/{pool}/{volume}/swap', { params: dry, body })),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/swap', { params, body })),
        cost: [
          ...updateCost(history, 'The update before it'),
          'Hosts cannot write at either site from the moment when the original is fenced until the roles have changed: about as long as one update takes.',
        ],
        typed: mirror.name,
      };
    case 'delete':
      return {
        title: `Delete the mirror of ${mirror.name}`,
        verb: 'Delete the mirror',
        plan: () => planned(api.DELETE('/api/v1/mirrors/{pool}/{volume}', { params: dry })),
        run: () => answered(api.DELETE('/api/v1/mirrors/{pool}/{volume}', { params: { path, header: confirming(mirror.name) } })),
        cost: ['Nothing on the link. A mirror that is made anew compares the whole volume.'],
        typed: mirror.name,
      };
    case 'release': {
      const peer = peerOf(mirror);
      return {
        title: `Release the mirror of ${mirror.name} to ${peer}`,
        verb: 'Release',
        plan: () => planned(api.POST('/api/v1/mirrors/{pool}/{volume}/release/{peer}', { params: { path: { ...path, peer }, query: { plan: true } } })),
        run: () => answered(api.POST('/api/v1/mirrors/{pool}/{volume}/release/{peer}', { params: { path: { ...path, peer }, header: confirming(`${mirror.name} ${peer}`) } })),
        cost: ['Nothing on the link. Space that was kept for the mirror comes back.'],
        typed: mirror.name,
      };
    }
    default:
      return null;
  }
}
