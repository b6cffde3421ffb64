import { useState } from 'react';
import { FormSelect, FormSelectOption } from '@patternfly/react-core';
import { rate } from '../words/quantities';
import { rateAt, readThrottle } from './throttle';

const DAYS = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];

/** A throttle by the hours of a day. */
export function Hours({ title, rules }: { title: string; rules: string }) {
  const [day, setDay] = useState((new Date().getDay() + 6) % 7);
  const throttle = readThrottle(rules);
  const hours = Array.from({ length: 24 }, (_, hour) => rateAt(throttle, day, hour * 60));
  const most = Math.max(...hours.map((each) => each ?? 0), 1);
  // What is not limited stands above every limit.
  const highest = hours.includes(null) ? 50 : 100;
  const words = (each: number | null) => (each === null ? 'unlimited' : rate(each));
  if (throttle.rules.length === 0) {
    return (
      <p>
        {title}: {rules}
      </p>
    );
  }
  return (
    <div className="gap-below">
      <p>
        {title}: <code>{rules}</code>
      </p>
      <FormSelect
        className="narrow-select" aria-label={`Day of: ${title}`} value={String(day)} onChange={(_, value) => setDay(Number(value))}>
        {DAYS.map((name, index) => (
          <FormSelectOption key={name} value={String(index)} label={name} />
        ))}
      </FormSelect>
      <div
        className="hours"
        role="img"
        aria-label={`${title} on ${DAYS[day]}: ${hours.map((each, hour) => `${hour}:00 ${words(each)}`).join(', ')}`}
      >
        {hours.map((each, hour) => (
          <span
            key={hour}
            className={each === null ? 'hour hour-unlimited' : 'hour'}
            title={`${hour}:00 ${words(each)}`}
            style={{ height: `${each === null ? 100 : Math.max(4, (each / most) * highest)}%` }}
          />
        ))}
      </div>
      <div className="hours-below" aria-hidden="true">
        <span>00:00</span>
        <span>06:00</span>
        <span>12:00</span>
        <span>18:00</span>
        <span>24:00{throttle.zone ? ` ${throttle.zone}` : ''}</span>
      </div>
    </div>
  );
}
