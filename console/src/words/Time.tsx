import { useSyncExternalStore } from 'react';
import { age } from './quantities';

// One clock for the page: everything that shows an age is drawn together, once a second.
const watchers = new Set<() => void>();
let now = Date.now();
let ticking: ReturnType<typeof setInterval> | undefined;
function watch(watcher: () => void) {
  watchers.add(watcher);
  ticking ??= setInterval(() => {
    now = Date.now();
    for (const each of watchers) each();
  }, 1000);
  return () => {
    watchers.delete(watcher);
    if (watchers.size === 0) {
      clearInterval(ticking);
      ticking = undefined;
    }
  };
}

/** The time, to the second. */
export const useNow = () => useSyncExternalStore(watch, () => now);

export const exact = (at: string) => at.replace(/\.\d+Z$/, 'Z').replace('T', ' ').replace('Z', ' UTC');

/** How long ago something was; exactly when, in its title. */
export function Ago({ at }: { at: string | null | undefined }) {
  const time = useNow();
  if (!at) return <>–</>;
  const seconds = (time - Date.parse(at)) / 1000;
  return (
    <time dateTime={at} title={exact(at)} className="number">
      {seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`}
    </time>
  );
}
