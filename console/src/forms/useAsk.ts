import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { readAgain } from '../api/queries';

/** Asks for something once at a time, and keeps why it failed. */
export function useAsk() {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const ask = async <T>(what: () => Promise<T>): Promise<T | undefined> => {
    setAsking(true);
    setFailure(null);
    try {
      const said = await what();
      await readAgain(client);
      return said;
    } catch (error) {
      setFailure(error);
      return undefined;
    } finally {
      setAsking(false);
    }
  };
  return { ask, asking, failure };
}
