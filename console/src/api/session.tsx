import { useQuery, useQueryClient, type QueryClient } from '@tanstack/react-query';
import { createContext, useContext } from 'react';
import { answered, api, Failure, type AccessRole, type Schemas } from './client';

export type WhoAmI = Schemas['WhoAmI'];

/** Who is logged in; null: nobody. */
export const useSession = () =>
  useQuery({
    queryKey: ['session'],
    queryFn: async (): Promise<WhoAmI | null> => {
      try {
        return await answered(api.GET('/api/v1/session'));
      } catch (error) {
        if (error instanceof Failure && error.code === 'unauthenticated') return null;
        throw error;
      }
    },
    staleTime: Infinity,
    // Nothing is shown yet, or no more: it goes on as soon as the daemon answers.
    refetchInterval: (query) => (query.state.error ? 3_000 : false),
  });

/** Somebody else, or nobody: what was read as the one before is forgotten. */
export function becomes(client: QueryClient, who: WhoAmI | null) {
  client.removeQueries({ predicate: (query) => query.queryKey[0] !== 'session' });
  client.setQueryData(['session'], who);
}

export const SessionContext = createContext<WhoAmI | null>(null);

const RANK: Record<AccessRole, number> = { viewer: 0, operator: 1, administrator: 2 };

/** Whether whoever is logged in may do what needs this role. */
export function useMay(): (role: AccessRole) => boolean {
  const session = useContext(SessionContext);
  return (role) => session !== null && RANK[session.role] >= RANK[role];
}

export function useLogOut() {
  const client = useQueryClient();
  return async () => {
    await api.DELETE('/api/v1/session').catch(() => undefined);
    becomes(client, null);
  };
}
