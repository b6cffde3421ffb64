import type { Schemas } from '../api/client';

/** Kinds of transfers, by the words of the buttons that begin them. */
export const KINDS: Record<Schemas['TransferKind'], string> = { initialize: 'first copy', update: 'update', resync: 'resync' };
