import { FormSelect, FormSelectOption } from '@patternfly/react-core';
import { useSites } from '../api/queries';
import { home, SITE } from '../api/site';

/** Goes to another site that lets this one look. Not there where there is none. */
export function SiteChoice() {
  const sites = useSites();
  const open = (sites.data ?? []).filter((site) => site.state === 'here' || site.state === 'seen');
  if (open.length < 2 && !SITE) return null;
  return (
    <FormSelect
      className="site-choice"
      aria-label="Site that is shown"
      value={SITE}
      onChange={(_, site) => window.location.assign(home(site))}
    >
      {open.map((site) => (
        <FormSelectOption key={site.id} value={site.state === 'here' ? '' : site.name} label={site.name} />
      ))}
    </FormSelect>
  );
}
