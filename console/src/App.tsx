import { Component, lazy, Suspense } from 'react';
import { Link, Route, Routes } from 'react-router-dom';
import { SessionContext, useSession } from './api/session';
import { SITE } from './api/site';
import { Overview } from './overview/Overview';
import { PageFrame } from './shell/PageFrame';
import { Shell } from './shell/Shell';
import { FailureNote } from './words/FailureNote';

const Login = lazy(() => import('./shell/Login'));
const Mirrors = lazy(() => import('./mirrors/Mirrors'));
const MirrorPage = lazy(() => import('./mirrors/MirrorPage'));
const Volumes = lazy(() => import('./volumes/Volumes'));
const VolumePage = lazy(() => import('./volumes/VolumePage'));
const Hosts = lazy(() => import('./hosts/Hosts'));
const HostPage = lazy(() => import('./hosts/HostPage'));
const Pools = lazy(() => import('./pools/Pools'));
const PoolPage = lazy(() => import('./pools/PoolPage'));
const Peers = lazy(() => import('./peers/Peers'));
const PeerPage = lazy(() => import('./peers/PeerPage'));
const Calculator = lazy(() => import('./peers/Calculator'));
const Accelerator = lazy(() => import('./accelerator/Accelerator'));
const Alarms = lazy(() => import('./events/Alarms'));
const Events = lazy(() => import('./events/Events'));
const Audit = lazy(() => import('./events/Audit'));
const Access = lazy(() => import('./access/Access'));
const Sites = lazy(() => import('./sites/Sites'));
const Create = lazy(() => import('./create/Create'));

/** Every page belongs to one site: the one whose daemon serves it, or a peer that is asked through it (`api/site.ts`). */
export function App() {
  const session = useSession();
  if (session.data === undefined) {
    return session.error ? (
      <main className="login">
        <FailureNote error={session.error} />
        {SITE && <a href="/sites">Back to the list of sites</a>}
      </main>
    ) : null;
  }
  if (session.data === null) {
    return (
      <Suspense fallback={null}>
        <Login />
      </Suspense>
    );
  }
  return (
    <SessionContext.Provider value={session.data}>
      <Boundary>
        <Routes>
          <Route element={<Shell />}>
            <Route index element={<Overview />} />
            <Route path="login" element={<Overview />} />
            <Route path="mirrors" element={<Mirrors />} />
            <Route path="mirrors/:pool/:volume" element={<MirrorPage />} />
            <Route path="volumes" element={<Volumes />} />
            <Route path="volumes/:pool/:volume" element={<VolumePage />} />
            <Route path="hosts" element={<Hosts />} />
            <Route path="hosts/:host" element={<HostPage />} />
            <Route path="pools" element={<Pools />} />
            <Route path="pools/:pool" element={<PoolPage />} />
            <Route path="peers" element={<Peers />} />
            <Route path="peers/:peer" element={<PeerPage />} />
            <Route path="calculator" element={<Calculator />} />
            <Route path="accelerator" element={<Accelerator />} />
            <Route path="alarms" element={<Alarms />} />
            <Route path="events" element={<Events />} />
            <Route path="audit" element={<Audit />} />
            <Route path="access" element={<Access />} />
            <Route path="sites" element={<Sites />} />
            <Route path="create/*" element={<Create />} />
            <Route path="*" element={<Nowhere />} />
          </Route>
        </Routes>
      </Boundary>
    </SessionContext.Provider>
  );
}

function Nowhere() {
  return (
    <PageFrame title="There is no such page">
      <Link to="/">Overview</Link>
    </PageFrame>
  );
}

/** A mistake of this console shows itself, and does not leave an empty page. */
class Boundary extends Component<{ children: React.ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };
  static getDerivedStateFromError(error: unknown) {
    return { error };
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <main className="login">
        <FailureNote title="The console made a mistake (bug). Nothing was changed by it." error={this.state.error} />
        <a href="/">Begin anew</a>
      </main>
    );
  }
}
