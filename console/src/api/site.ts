/** The peer whose site is shown, from the address `/site/PEER/…`; empty: the site whose daemon serves this page. */
export const SITE = named(/^\/site\/([^/]+)/.exec(globalThis.location?.pathname ?? '')?.[1] ?? '');

function named(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Where the pages of a site begin. */
export const home = (site: string) => (site ? `/site/${encodeURIComponent(site)}` : '/');

const API = '/api/v1/';

/**
 * Where a request goes: to the API of the site that is shown, through this daemon. Who is logged in is a matter of this daemon, and
 * so is which sites there are.
 */
export function through(path: string, method = 'GET'): string {
  const isOwn = path === `${API}sites` || (path === `${API}session` && method !== 'GET');
  return isOwn ? path : toSite(SITE, path);
}

/** The same path of the API at a peer, through this daemon; empty: at this daemon itself. */
export const toSite = (site: string, path: string) =>
  site && path.startsWith(API) ? `${API}sites/${encodeURIComponent(site)}/${path.slice(API.length)}` : path;
