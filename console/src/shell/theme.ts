import { useSyncExternalStore } from 'react';

export type Theme = 'system' | 'light' | 'dark';

const KEPT = 'farside-theme';
const DARK = 'pf-v6-theme-dark';
const system = window.matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set<() => void>();

function kept(): Theme {
  try {
    const theme = localStorage.getItem(KEPT);
    return theme === 'light' || theme === 'dark' ? theme : 'system';
  } catch {
    return 'system';
  }
}

let theme = kept();

const isDark = () => theme === 'dark' || (theme === 'system' && system.matches);

function apply() {
  document.documentElement.classList.toggle(DARK, isDark());
  for (const listener of listeners) listener();
}

/** Before anything is drawn: by what was chosen, else by the system. */
export function beginTheme() {
  apply();
  system.addEventListener('change', apply);
}

export function chooseTheme(chosen: Theme) {
  theme = chosen;
  try {
    if (chosen === 'system') localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, chosen);
  } catch {
    // It holds for this page, then.
  }
  apply();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};
export const useTheme = () => useSyncExternalStore(subscribe, () => theme);
export const useIsDark = () => useSyncExternalStore(subscribe, isDark);
