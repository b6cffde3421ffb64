import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import { useIsDark } from '../shell/theme';

/** Times along the axis: as short as still tells them apart. */
function times(ticks: number[]): string[] {
  const span = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0);
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    if (span > 2 * 86_400) return at.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' });
    return at.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', ...(span < 600 && { second: '2-digit' }) });
  });
}

export interface Line {
  label: string;
  /** A name of the style sheet: `--plot-…`. */
  colour: string;
  fill?: boolean;
  points?: boolean;
}

/** A plot over time. Whoever cannot see it gets the sentence. */
export default function Plot({
  data,
  lines,
  value,
  sentence,
  height = 200,
}: {
  data: number[][];
  lines: Line[];
  value: (value: number) => string;
  sentence: string;
  height?: number;
}) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(data);
  latest.current = data;
  const dark = useIsDark();

  useEffect(() => {
    const parent = place.current!;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim() || 'gray';
    const axis = { stroke: colour('--plot-text'), grid: { stroke: colour('--plot-grid'), width: 1 }, ticks: { show: false } };
    const options: uPlot.Options = {
      width: parent.clientWidth,
      height,
      cursor: { drag: { x: false, y: false } },
      axes: [{ ...axis, space: 90, values: (_self, ticks) => times(ticks) }, { ...axis, size: 76, values: (_self, ticks) => ticks.map(value) }],
      series: [
        { value: (_self, at) => (at ? new Date(at * 1000).toLocaleString('en-GB') : '–') },
        ...lines.map((line) => ({
          label: line.label,
          stroke: colour(line.colour),
          width: 2,
          ...(line.fill && { fill: `${colour(line.colour)}33` }),
          points: { show: line.points ?? false, size: 6 },
          value: (_self: uPlot, at: number | null) => (at === null || at === undefined ? '–' : value(at)),
        })),
      ],
    };
    plot.current = new uPlot(options, latest.current as uPlot.AlignedData, parent);
    const seen = new ResizeObserver(() => plot.current?.setSize({ width: parent.clientWidth, height }));
    seen.observe(parent);
    return () => {
      seen.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
    // The lines of a plot stay as they are for as long as it is shown.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [dark, height]);

  useEffect(() => plot.current?.setData(data as uPlot.AlignedData), [data]);

  return (
    <figure className="plot" style={{ minHeight: height + 36 }}>
      <div ref={place} role="img" aria-label={sentence} />
    </figure>
  );
}
