import {
  Button,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadLogo,
  MastheadMain,
  MastheadToggle,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
} from '@patternfly/react-core';
import { Suspense, useContext, useEffect, useState } from 'react';
import { Link, Outlet, useLocation } from 'react-router-dom';
import { useLostSince } from '../api/heard';
import { useLive } from '../api/live';
import { useAccelerator, useAlarms, useSite } from '../api/queries';
import { SessionContext, useLogOut, useMay } from '../api/session';
import { SITE } from '../api/site';
import { SiteChoice } from '../sites/SiteChoice';
import { Loaded, PageFrame } from './PageFrame';
import { chooseTheme, useTheme, type Theme } from './theme';
import { useNow } from '../words/Time';
import { age } from '../words/quantities';

const NEXT: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
const THEME: Record<Theme, string> = { system: '◐ Auto', light: '☀ Light', dark: '☾ Dark' };

export function Shell() {
  useLive();
  const { pathname } = useLocation();
  const site = useSite();
  const session = useContext(SessionContext);
  const logOut = useLogOut();
  const theme = useTheme();
  const isWide = useIsWide();
  const [open, setOpen] = useState(isWide);
  useEffect(() => setOpen(isWide), [isWide]);
  // On a phone the list of pages goes away once one is chosen.
  useEffect(() => {
    if (!isWide) setOpen(false);
    document.getElementById('main')?.scrollTo({ top: 0 });
  }, [pathname, isWide]);

  const masthead = (
    <Masthead>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton
            variant="plain"
            aria-label="Pages"
            isSidebarOpen={open}
            onSidebarToggle={() => setOpen(!open)}
            isHamburgerButton
          />
        </MastheadToggle>
        <MastheadBrand>
          <MastheadLogo component={(props: object) => <Link {...props} to="/" />}>
            <span className="brand">farside</span>
            <span className="brand-site" title={SITE ? 'The site that is shown, asked through this one' : 'The name of this site'}>
              {SITE || site.data?.name}
            </span>
          </MastheadLogo>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <div className="masthead-tools">
          <SiteChoice />
          <span className="who">
            {session?.who.replace('account ', '')} <span className="quiet">{session?.role}</span>
          </span>
          <Button
            variant="plain"
            onClick={() => chooseTheme(NEXT[theme])}
            aria-label={`Colours: ${theme}. Choose ${NEXT[theme]}`}
            title="Light, dark, or as the system has it"
          >
            {THEME[theme]}
          </Button>
          <Button variant="plain" onClick={() => void logOut()}>
            Log out
          </Button>
        </div>
      </MastheadContent>
    </Masthead>
  );

  return (
    <Page
      masthead={masthead}
      mainContainerId="main"
      mainAriaLabel="Content"
      skipToContent={<SkipToContent href="#main">Skip to content</SkipToContent>}
      sidebar={
        <PageSidebar isSidebarOpen={open} id="pages">
          <PageSidebarBody>
            <Pages pathname={pathname} />
          </PageSidebarBody>
        </PageSidebar>
      }
    >
      <LostBanner />
      <Suspense
        fallback={
          <PageFrame title="Loading">
            <Loaded query={{ data: undefined, error: null }}>{() => null}</Loaded>
          </PageFrame>
        }
      >
        <Outlet />
      </Suspense>
    </Page>
  );
}

function Pages({ pathname }: { pathname: string }) {
  const may = useMay();
  const alarms = useAlarms();
  const accelerator = useAccelerator();
  const open = alarms.data?.filter((alarm) => !alarm.acknowledged).length ?? 0;
  const pages: [string, string][] = [
    ['/', 'Overview'],
    ['/mirrors', 'Mirrors'],
    ['/volumes', 'Volumes'],
    ['/pools', 'Pools'],
    ['/hosts', 'Hosts'],
    ['/peers', 'Peers and paths'],
    ['/calculator', 'Calculator'],
  ];
  // A peer of a peer is not reached.
  if (!SITE) pages.push(['/sites', 'Sites']);
  if (accelerator.data && (accelerator.data.state !== 'off' || accelerator.data.listen)) {
    pages.push(['/accelerator', 'Accelerator']);
  }
  pages.push(['/alarms', open > 0 ? `Alarms (${open})` : 'Alarms'], ['/events', 'Events']);
  if (may('operator')) pages.push(['/audit', 'Audit']);
  if (may('administrator')) pages.push(['/access', 'Accounts and tokens']);
  if (may('operator')) pages.push(['/create', 'Protect a volume']);
  return (
    <Nav aria-label="Pages">
      <NavList>
        {pages.map(([path, title]) => {
          const isHere = path === '/' ? pathname === '/' : pathname === path || pathname.startsWith(`${path}/`);
          return (
            <NavItem key={path} itemId={path} isActive={isHere}>
              <Link to={path} aria-current={isHere ? 'page' : undefined}>
                {title}
              </Link>
            </NavItem>
          );
        })}
      </NavList>
    </Nav>
  );
}

/** Says that what is shown may be old. */
function LostBanner() {
  const since = useLostSince();
  const now = useNow();
  return (
    <div role="status" aria-live="assertive">
      {since !== null && (
        <div className="lost">
          The connection to the daemon is lost since {age((now - since) / 1000)}. What is shown is as it was then. Trying again
          by itself.
        </div>
      )}
    </div>
  );
}

function useIsWide(): boolean {
  const [wide] = useState(() => window.matchMedia('(min-width: 75rem)'));
  const [is, setIs] = useState(wide.matches);
  useEffect(() => {
    const look = () => setIs(wide.matches);
    wide.addEventListener('change', look);
    return () => wide.removeEventListener('change', look);
  }, [wide]);
  return is;
}
