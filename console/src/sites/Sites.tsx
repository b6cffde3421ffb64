import { useQuery } from '@tanstack/react-query';
import { READ_WITHIN, type Mirror, type Schemas } from '../api/client';
import { seen, useMirrors, useSites, type SeenMirror } from '../api/queries';
import { home } from '../api/site';
import { useCounts } from '../mirrors/MirrorTable';
import { lagOf, urgency, judge } from '../mirrors/verdict';
import { Lag, VerdictLabel } from '../mirrors/VerdictLabel';
import { Loaded, PageFrame, Panel } from '../shell/PageFrame';
import { DataTable, type Column } from '../table/DataTable';
import { Status } from '../words/Status';
import { Ago } from '../words/Time';

type SiteSeen = Schemas['SiteSeen'];

const STATES: Record<SiteSeen['state'], { tone: 'proven' | 'neutral' | 'warning' | 'danger'; word: string }> = {
  here: { tone: 'neutral', word: 'This site' },
  seen: { tone: 'neutral', word: 'Answers' },
  closed: { tone: 'neutral', word: 'Closed to this site' },
  away: { tone: 'warning', word: 'Away' },
};

function Health({ site }: { site: SiteSeen }) {
  const status = site.status;
  if (!status) return <>unknown</>;
  const reasons = status.reasons ?? [];
  const said = [...reasons, ...(status.warnings ?? [])];
  if (said.length === 0) return <Status tone="neutral">Nothing is wrong</Status>;
  const tone = reasons.length > 0 ? 'danger' : 'warning';
  return (
    <>
      <Status tone={tone}>{tone === 'danger' ? 'Somebody has to look' : said.length === 1 ? 'One warning' : `${said.length} warnings`}</Status>
      <div className="quiet">{said[0]}</div>
    </>
  );
}

const SITES: Column<SiteSeen>[] = [
  {
    title: 'Site',
    width: 14,
    value: (site) => `${site.state === 'here' ? 0 : 1} ${site.name}`,
    cell: (site) =>
      site.state === 'seen' ? <a href={home(site.name)}>{site.name}</a> : site.state === 'here' ? <a href="/">{site.name}</a> : site.name,
  },
  {
    title: 'State',
    width: 20,
    value: (site) => site.state,
    cell: (site) => (
      <>
        <Status tone={STATES[site.state].tone}>{STATES[site.state].word}</Status>
        {site.why && <div className="quiet">{site.why}</div>}
      </>
    ),
  },
  { title: 'Health', width: 30, value: (site) => site.status?.reasons?.length ?? 0, cell: (site) => <Health site={site} /> },
  { title: 'Version', width: 10, value: (site) => site.version, cell: (site) => site.version ?? '' },
  { title: 'You may', width: 14, value: (site) => site.role, cell: (site) => site.role ?? '' },
  { title: 'Seen', width: 12, value: (site) => site.seen_at, cell: (site) => (site.seen_at ? <Ago at={site.seen_at} /> : 'not yet') },
];

/** A mirror, and the site that was asked about it. */
type Placed = { site: string; mirror: SeenMirror };

const MIRRORS: Column<Placed>[] = [
  {
    title: 'Status',
    width: 20,
    value: ({ mirror }) => {
      const { verdict, word } = judge(mirror, Date.now(), false);
      return `${String(urgency(verdict)).padStart(2, '0')} ${word} ${mirror.name}`;
    },
    cell: ({ mirror }) => <VerdictLabel mirror={mirror} />,
  },
  { title: 'Site', width: 15, value: ({ site }) => site, cell: ({ site }) => site },
  {
    title: 'Volume',
    width: 25,
    value: ({ mirror }) => mirror.name,
    cell: ({ site, mirror }) => <a href={`${home(site).replace(/\/$/, '')}/mirrors/${mirror.name}`}>{mirror.name}</a>,
  },
  { title: 'From', width: 20, value: ({ mirror }) => mirror.source, cell: ({ mirror }) => mirror.source },
  { title: 'Lag', width: 20, value: ({ mirror }) => lagOf(mirror, Date.now()), cell: ({ mirror }) => <Lag mirror={mirror} /> },
];

/** The replicas of other sites, each asked of its own. */
function useElsewhere(sites: SiteSeen[] | undefined) {
  const open = (sites ?? []).filter((site) => site.state === 'seen').map((site) => site.name);
  return useQuery({
    queryKey: ['elsewhere', ...open],
    enabled: open.length > 0,
    refetchInterval: 15_000,
    queryFn: async () => {
      const asked = open.map(async (site): Promise<{ site: string; mirrors: Placed[]; failed: boolean }> => {
        try {
          const path = `/api/v1/sites/${encodeURIComponent(site)}/mirrors?role=destination`;
          const response = await fetch(path, { signal: AbortSignal.timeout(READ_WITHIN) });
          const mirrors = response.ok ? ((await response.json()) as Mirror[]) : null;
          if (!mirrors) return { site, mirrors: [], failed: true };
          return { site, mirrors: mirrors.map((mirror) => ({ site, mirror: seen(mirror) })), failed: false };
        } catch {
          // One that hangs hides none of the others.
          return { site, mirrors: [], failed: true };
        }
      });
      const all = await Promise.all(asked);
      return { mirrors: all.flatMap((one) => one.mirrors), failed: all.filter((one) => one.failed).map((one) => one.site) };
    },
  });
}

export default function Sites() {
  const sites = useSites();
  const own = useMirrors();
  const elsewhere = useElsewhere(sites.data);
  const here = sites.data?.find((site) => site.state === 'here')?.name ?? '';
  const replicas = (own.data ?? []).filter((mirror) => mirror.role === 'destination').map((mirror) => ({ site: '', mirror }));
  const all = [...replicas, ...(elsewhere.data?.mirrors ?? [])];
  const unknown = elsewhere.data?.failed ?? [];
  const counts = useCounts(all.map(({ mirror }) => mirror), false);
  return (
    <PageFrame title="Sites">
      <Panel title="Sites that this one is paired with">
        <Loaded query={sites} lines={4}>
          {(known) => <DataTable label="Sites" rows={known} columns={SITES} rowKey={(site) => site.id} empty="There is no other site." searchable={false} />}
        </Loaded>
        <p className="quiet">
          A site is shown if it lets this one look. An administrator there allows it: in its console under Peers and paths, {here || 'this site'}, Settings; or <code>farside peer set {here || 'PEER'} --role viewer</code>
        </p>
      </Panel>
      <Panel title={`Replicas at all sites: ${counts.proven} proven, ${counts.warning + counts.danger} need a person${unknown.length > 0 ? `; ${unknown.join(', ')} did not say` : ''}`}>
        <Loaded query={own} lines={6}>
          {() => (
            <DataTable
              label="Replicas at all sites, those that need a person first"
              rows={all.map((placed) => (placed.site ? placed : { ...placed, site: '' }))}
              columns={MIRRORS.map((column) =>
                column.title === 'Site' ? { ...column, cell: ({ site }: Placed) => site || here, value: ({ site }: Placed) => site || here } : column,
              )}
              rowKey={({ site, mirror }) => `${site} ${mirror.id}`}
              empty="There are no replicas yet."
            />
          )}
        </Loaded>
      </Panel>
    </PageFrame>
  );
}
