import createClient from 'openapi-fetch';
import { heard } from './heard';
import { through, toSite } from './site';
import type { components, paths } from './schema';

export type Schemas = components['schemas'];
export type Mirror = Schemas['Mirror'];
export type Pool = Schemas['Pool'];
export type Volume = Schemas['Volume'];
export type Snapshot = Schemas['Snapshot'];
export type Peer = Schemas['Peer'];
export type Alarm = Schemas['Alarm'];
export type Operation = Schemas['Operation'];
export type TransferRecord = Schemas['TransferRecord'];
export type Plan = Schemas['Plan'];
export type AccessRole = Schemas['AccessRole'];

/** What only reads is answered within seconds, or the daemon is not there. What changes something may take its time. */
export const READ_WITHIN = 15_000;

const client = (way: (path: string, method?: string) => string) =>
  createClient<paths>({
    baseUrl: '',
    Request: class extends Request {
      constructor(asked: RequestInfo | URL, init?: RequestInit) {
        super(typeof asked === 'string' ? way(asked, init?.method) : asked, init);
      }
    },
    fetch: (request) => fetch(request, request.method === 'GET' ? { signal: AbortSignal.timeout(READ_WITHIN) } : {}),
  });

/** The API of the site that is shown. */
export const api = client(through);

/** The API of a peer, whichever site is shown; empty: of the daemon that serves this page. */
export const apiOf = (site: string) => client((path) => toSite(site, path));

/** A failure as the API says it: what happened, and what to do next. */
export class Failure extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint?: string | null,
  ) {
    super(message);
  }
}

const LOST = new Failure(
  'daemon-unreachable',
  'The daemon does not answer.',
  'Is it running, and is the network there? The console tries again by itself.',
);

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** The answer, or a `Failure` that says why there is none. */
export async function answered<T>(asking: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await asking;
  } catch {
    heard('answers', false);
    throw LOST;
  }
  heard('answers', true);
  return read(answer);
}

/** The same of another site than the one that is shown: if that one hangs, this daemon is there all the same. */
export async function answeredElsewhere<T>(asking: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await asking;
  } catch {
    throw new Failure('peer-unreachable', 'It does not answer.');
  }
  return read(answer);
}

function read<T>(answer: Answer<T>): T {
  const delayed = answer.response.status === 202 ? (answer.data as Schemas['DelayedDocument'] | undefined)?.error : undefined;
  if (delayed) throw new Failure(delayed.code, delayed.message, delayed.hint);
  if (answer.response.ok) return answer.data as T;
  const body = (answer.error as { error?: Schemas['ErrorBody'] } | undefined)?.error;
  throw new Failure(body?.code ?? 'failed', body?.message ?? `The daemon answered ${answer.response.status}.`, body?.hint);
}

/** The parts of `POOL/VOL`, as paths of the API take them. */
export function parts(name: string): { pool: string; volume: string } {
  const at = name.indexOf('/');
  return { pool: name.slice(0, at), volume: name.slice(at + 1) };
}

/** The header by which a request that takes something away names what it is about. */
export const confirming = (thing: string) => ({ 'x-farside-confirm': thing });

/** The answer to a request with `?plan=true`: what it would do. */
export const planned = (asking: Promise<Answer<unknown>>) => answered(asking) as Promise<Plan>;
