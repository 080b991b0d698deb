// A chart of a few series over time, with marks such as kills. The last values are text beside it.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  readonly label: string;
  readonly values: readonly (number | null)[];
  readonly color: string; // a custom property of style.css
}

interface Props {
  readonly title: string;
  readonly times: readonly number[]; // seconds since the epoch, or since a start
  readonly series: readonly Series[];
  readonly marks?: readonly number[]; // as the times
  readonly markLabel?: string;
  readonly sinceStart?: boolean; // what the times count
}

const HEIGHT = 200;

const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Whether the page is dark; a chart is drawn again when that changes, because a canvas has no style sheet. */
function useDark(): boolean {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

/** A chart; nothing before there are two moments to connect. */
export function Chart(props: Props) {
  return props.times.length < 2 ? null : <Plot {...props} />;
}

function Plot({ title, times, series, marks = [], markLabel = "", sinceStart = false }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marked = useRef(marks);
  marked.current = marks;
  const dark = useDark();
  const labels = series.map((s) => s.label).join("|");

  useEffect(() => {
    if (!box.current) return;
    const axis = { stroke: css("--muted"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1 } };
    const created = new uPlot(
      {
        width: Math.max(200, box.current.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        padding: [8, 8, 0, 0],
        scales: { x: { time: !sinceStart }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
        series: [{}, ...series.map((s) => ({ label: s.label, stroke: css(s.color), width: 2, points: { show: false } }))],
        axes: [
          { ...axis, values: (_, ticks) => ticks.map(sinceStart ? elapsed : clock) },
          { ...axis, size: 64, values: (_, ticks) => ticks.map(short) },
        ],
        hooks: { draw: [(u) => drawMarks(u, marked.current, css("--bad"))] },
      },
      [[], ...series.map(() => [])],
      box.current,
    );
    plot.current = created;
    const observer = new ResizeObserver(() => {
      if (box.current) created.setSize({ width: Math.max(200, box.current.clientWidth), height: HEIGHT });
    });
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      created.destroy();
      plot.current = null;
    };
  }, [dark, labels, sinceStart]);

  useEffect(() => {
    plot.current?.setData([[...times], ...series.map((s) => [...s.values])] as uPlot.AlignedData);
  });

  return (
    <figure class="chart">
      <figcaption>
        {title}
        {series.map((s) => (
          <span key={s.label} class="legend">
            <span class="swatch" aria-hidden="true" style={{ background: `var(${s.color})` }} />
            {s.label}
          </span>
        ))}
        {marks.length > 0 && (
          <span class="legend">
            <span class="swatch mark" aria-hidden="true" />
            {markLabel}
          </span>
        )}
      </figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  );
}

const elapsed = (seconds: number): string => `${+seconds.toFixed(1)} s`;

const clock = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString("en-GB");

function short(value: number): string {
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${+(value / 1e3).toFixed(1)} k`;
  return String(+value.toFixed(1));
}

function drawMarks(u: uPlot, marks: readonly number[], color: string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = color;
  ctx.setLineDash([4, 4]);
  for (const at of marks) {
    const x = Math.round(u.valToPos(at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
