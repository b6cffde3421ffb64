import { lazy } from 'react';
import { Link, Route, Routes, useNavigate } from 'react-router-dom';
import { PageFrame, Panel } from '../shell/PageFrame';
import { PoolForm } from './PoolForm';
import { VolumeForm } from './VolumeForm';

const ProtectHere = lazy(() => import('./ProtectHere'));
const KeepReplica = lazy(() => import('./KeepReplica'));

/** Guided ways to make things. Each step is a form that works by itself, too. */
export default function Create() {
  return (
    <Routes>
      <Route index element={<Choice />} />
      <Route path="original" element={<ProtectHere />} />
      <Route path="replica" element={<KeepReplica />} />
      <Route path="pool" element={<Alone title="Make a pool" form={(done) => <PoolForm onDone={done} />} back="/pools" />} />
      <Route path="volume" element={<Alone title="Make a volume" form={(done) => <VolumeForm onDone={done} />} back="/volumes" />} />
    </Routes>
  );
}

function Choice() {
  return (
    <PageFrame title="Protect a volume">
      <p className="gap-below">
        A volume is protected by a replica at another site. The original’s site allows it; the replica’s site fetches it, by its own schedule.
        Do the first part here if the volume is at this site, then the second part in the other site’s console.
      </p>
      <div className="choices">
        <Panel title="1. At the site of the original">
          <p className="gap-below">Make the pool and the volume, invite the other site, and allow it to mirror the volume.</p>
          <Link className="button-link" to="/create/original">
            The original is here
          </Link>
        </Panel>
        <Panel title="2. At the site of the replica">
          <p className="gap-below">Make the pool, join the other site with its code, make the mirror, and begin the first copy.</p>
          <Link className="button-link" to="/create/replica">
            The replica is to be here
          </Link>
        </Panel>
      </div>
    </PageFrame>
  );
}

function Alone({ title, form, back }: { title: string; back: string; form: (done: (name: string) => void) => React.ReactNode }) {
  const navigate = useNavigate();
  return (
    <PageFrame title={title} above={<Link to={back}>{back === '/pools' ? 'Pools' : 'Volumes'}</Link>}>
      <Panel title={title} className="narrow">
        {form((name) => void navigate(`${back}/${name}`))}
      </Panel>
    </PageFrame>
  );
}
