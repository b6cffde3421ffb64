import { SelectField, TextField } from './fields';
import type { When } from './when';

const LABELS: Record<When['kind'], string> = {
  rpo: 'so that an objective is kept',
  every: 'at an interval',
  cron: 'by a timetable',
  asked: 'when asked for',
};

/** When something begins by itself: which way, and the time. */
export function WhenFields({
  label,
  kinds,
  when,
  onChange,
  wrong,
}: {
  label: string;
  kinds: When['kind'][];
  when: When;
  onChange: (when: When) => void;
  wrong?: string | null;
}) {
  return (
    <>
      <SelectField
        label={label}
        value={when.kind}
        onChange={(kind) => onChange({ kind: kind as When['kind'], time: '', zone: '' })}
        options={kinds.map((kind) => ({ value: kind, label: LABELS[kind] }))}
      />
      {when.kind !== 'asked' && (
        <TextField
          label={when.kind === 'rpo' ? 'At most this old' : when.kind === 'every' ? 'Every' : 'Timetable, five fields of cron'}
          value={when.time}
          onChange={(time) => onChange({ ...when, time })}
          placeholder={when.kind === 'cron' ? '*/15 8-18 * * 1-5' : '15m'}
          wrong={when.time ? wrong : null}
        />
      )}
      {when.kind === 'cron' && (
        <TextField label="Time zone" value={when.zone} onChange={(zone) => onChange({ ...when, zone })} placeholder="Europe/Berlin" help="Left empty: that of the site’s machine." />
      )}
    </>
  );
}
