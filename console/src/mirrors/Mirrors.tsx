import { FormSelect, FormSelectOption } from '@patternfly/react-core';
import { Link, useSearchParams } from 'react-router-dom';
import { useMirrors, type SeenMirror } from '../api/queries';
import { useMay } from '../api/session';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { MirrorTable } from './MirrorTable';
import { judge } from './verdict';

const SHOWN: Record<string, { label: string; fits: (mirror: SeenMirror) => boolean }> = {
  all: { label: 'All', fits: () => true },
  danger: { label: 'Late or overtaken', fits: (mirror) => judge(mirror, Date.now(), false).tone === 'danger' },
  warning: { label: 'Need a look', fits: (mirror) => judge(mirror, Date.now(), false).tone === 'warning' },
  proven: { label: 'Within objective', fits: (mirror) => judge(mirror, Date.now(), false).tone === 'proven' },
  busy: { label: 'First copy under way', fits: (mirror) => judge(mirror, Date.now(), false).tone === 'busy' },
  neutral: { label: 'Without a verdict', fits: (mirror) => judge(mirror, Date.now(), false).tone === 'neutral' },
  destination: { label: 'Replica here', fits: (mirror) => mirror.role === 'destination' },
  source: { label: 'Original here', fits: (mirror) => mirror.role === 'source' },
};

export default function Mirrors() {
  const mirrors = useMirrors();
  const may = useMay();
  const [search, setSearch] = useSearchParams();
  const wanted = SHOWN[search.get('show') ?? 'all'] ? (search.get('show') ?? 'all') : 'all';
  return (
    <PageFrame
      title="Mirrors"
      actions={
        may('operator') && (
          <Link className="button-link" to="/create/replica">
            Make a mirror
          </Link>
        )
      }
    >
      <Panel
        title="Mirrors of this site"
        actions={
          <FormSelect
            aria-label="Which mirrors are shown"
            value={wanted}
            onChange={(_, value) => setSearch(value === 'all' ? {} : { show: value })}
          >
            {Object.entries(SHOWN).map(([value, { label }]) => (
              <FormSelectOption key={value} value={value} label={label} />
            ))}
          </FormSelect>
        }
      >
        <Loaded query={mirrors} lines={8}>
          {(all) => <MirrorTable label="Mirrors" mirrors={all.filter(SHOWN[wanted]!.fits)} />}
        </Loaded>
      </Panel>
    </PageFrame>
  );
}
