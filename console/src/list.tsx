// All pipelines: filtered, sorted, and only the visible rows in the document, so that thousands scroll smoothly.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Health, Row, State } from "./api";
import { Badge } from "./badge";
import { address } from "./route";
import { number, rate } from "./text";

type Column = "name" | "guarantee" | "health" | "lag" | "rate" | "reason";

const COLUMNS: readonly { readonly id: Column; readonly label: string; readonly numeric?: boolean }[] = [
  { id: "name", label: "Pipeline" },
  { id: "guarantee", label: "Guarantee" },
  { id: "health", label: "State" },
  { id: "lag", label: "Lag", numeric: true },
  { id: "rate", label: "Records/s", numeric: true },
  { id: "reason", label: "Why it is not ready" },
];
const URGENCY: Record<Health, number> = { attention: 0, waiting: 1, suspended: 2, ready: 3 };
const HEALTH: readonly [Health | "", string][] = [
  ["", "Every state"],
  ["attention", "Needs attention"],
  ["waiting", "Not ready yet"],
  ["suspended", "Suspended"],
  ["ready", "Ready"],
];
const NARROW = "(max-width: 55rem)";
const ROW_HEIGHT = { wide: 46, narrow: 132 }; // pixels, as style.css has them
const BEYOND = 8; // rows rendered above and below the visible ones

function compare(a: Row, b: Row, column: Column): number {
  switch (column) {
    case "lag":
    case "rate":
      return (a[column] ?? -1) - (b[column] ?? -1);
    case "health":
      return URGENCY[a.health] - URGENCY[b.health];
    case "name":
      return 0;
    default:
      return a[column].localeCompare(b[column]);
  }
}

const byName = (a: Row, b: Row) => a.namespace.localeCompare(b.namespace) || a.name.localeCompare(b.name);

export interface Choice {
  readonly text: string;
  readonly health: Health | "";
  readonly guarantee: string;
  readonly namespace: string;
  readonly column: Column;
  readonly descending: boolean;
}

export const FIRST_CHOICE: Choice = {
  text: "",
  health: "",
  guarantee: "",
  namespace: "",
  column: "health",
  descending: false,
};

/** The rows of a choice, in its order; equal ones by name. */
export function chosen(rows: readonly Row[], choice: Choice): Row[] {
  const words = choice.text.toLowerCase().split(/\s+/).filter(Boolean);
  const sign = choice.descending ? -1 : 1;
  return rows
    .filter(
      (r) =>
        (!choice.health || r.health === choice.health) &&
        (!choice.guarantee || r.guarantee === choice.guarantee) &&
        (!choice.namespace || r.namespace === choice.namespace) &&
        words.every((w) => `${r.namespace}/${r.name} ${r.reason} ${r.message}`.toLowerCase().includes(w)),
    )
    .sort((a, b) => sign * (compare(a, b, choice.column) || byName(a, b)));
}

export function PipelineList({ state, choice, onChoice }: { state: State; choice: Choice; onChoice: (c: Choice) => void }) {
  const rows = useMemo(() => chosen(state.pipelines, choice), [state.pipelines, choice]);
  const namespaces = useMemo(() => [...new Set(state.pipelines.map((r) => r.namespace))].sort(), [state.pipelines]);
  const count = (health: Health) => state.pipelines.filter((r) => r.health === health).length;
  const set = (change: Partial<Choice>) => onChoice({ ...choice, ...change });
  const select = (event: Event) => (event.currentTarget as HTMLSelectElement).value;
  return (
    <>
      <dl class="counts">
        {HEALTH.slice(1).map(([health, label]) => (
          <div key={health} class={health}>
            <dt>{label}</dt>
            <dd>{number(count(health as Health))}</dd>
          </div>
        ))}
      </dl>
      <form class="filters" role="search" aria-label="Filter of pipelines" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span>Filter</span>
          <input
            type="search"
            placeholder="name, namespace or reason"
            value={choice.text}
            onInput={(e) => set({ text: e.currentTarget.value })}
          />
        </label>
        <label>
          <span>State</span>
          <select value={choice.health} onChange={(e) => set({ health: select(e) as Health | "" })}>
            {HEALTH.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          <span>Guarantee</span>
          <select value={choice.guarantee} onChange={(e) => set({ guarantee: select(e) })}>
            <option value="">Every guarantee</option>
            {["exactly-once", "at-least-once", "at-most-once"].map((g) => (
              <option key={g}>{g}</option>
            ))}
          </select>
        </label>
        {namespaces.length > 1 && (
          <label>
            <span>Namespace</span>
            <select value={choice.namespace} onChange={(e) => set({ namespace: select(e) })}>
              <option value="">Every namespace</option>
              {namespaces.map((n) => (
                <option key={n}>{n}</option>
              ))}
            </select>
          </label>
        )}
        <label class="narrow-only">
          <span>Sort by</span>
          <select value={choice.column} onChange={(e) => set({ column: select(e) as Column })}>
            {COLUMNS.map((c) => (
              <option key={c.id} value={c.id}>
                {c.label}
              </option>
            ))}
          </select>
        </label>
      </form>
      <p role="status" class="muted">
        {rows.length === state.pipelines.length
          ? `${number(rows.length)} pipelines`
          : `${number(rows.length)} of ${number(state.pipelines.length)} pipelines`}
      </p>
      <Table rows={rows} choice={choice} set={set} />
    </>
  );
}

function Table({ rows, choice, set }: { rows: Row[]; choice: Choice; set: (change: Partial<Choice>) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const narrow = useNarrow();
  const height = narrow ? ROW_HEIGHT.narrow : ROW_HEIGHT.wide;
  const [top, setTop] = useState(0);
  const [visible, setVisible] = useState(800);
  const focus = useRef<number | null>(null); // the row that gets the focus once it is in the document

  useEffect(() => {
    const observer = new ResizeObserver(() => box.current && setVisible(box.current.clientHeight));
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(top / height) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((top + visible) / height) + BEYOND);

  useLayoutEffect(() => {
    if (focus.current === null) return;
    const link = box.current?.querySelector<HTMLElement>(`[data-row="${focus.current}"] a`);
    if (link) {
      focus.current = null;
      link.focus({ preventScroll: true });
    }
  });

  /** Moves the focus by rows, and scrolls so that it is visible. */
  function move(event: KeyboardEvent): void {
    const current = Number((event.target as HTMLElement).closest<HTMLElement>("[data-row]")?.dataset.row ?? -1);
    const page = Math.max(1, Math.floor(visible / height) - 1);
    const next = {
      ArrowDown: current + 1,
      ArrowUp: current - 1,
      PageDown: current + page,
      PageUp: current - page,
      Home: 0,
      End: rows.length - 1,
    }[event.key];
    if (next === undefined || rows.length === 0 || !box.current) return;
    event.preventDefault();
    const target = Math.min(rows.length - 1, Math.max(0, next));
    focus.current = target;
    const scrolled = box.current.scrollTop;
    const from = target * height;
    if (from < scrolled) box.current.scrollTop = from;
    else if (from + height > scrolled + visible) box.current.scrollTop = from + height - visible;
    setTop(box.current.scrollTop);
    box.current.querySelector<HTMLElement>(`[data-row="${target}"] a`)?.focus({ preventScroll: true });
  }

  return (
    <div class="list" role="table" aria-label="Pipelines" aria-rowcount={rows.length + 1} aria-colcount={COLUMNS.length}>
      <div role="rowgroup" class="head">
        <div role="row" class="grid" aria-rowindex={1}>
          {COLUMNS.map((c) => (
            <div
              key={c.id}
              role="columnheader"
              class={c.numeric ? "numeric" : ""}
              aria-sort={choice.column === c.id ? (choice.descending ? "descending" : "ascending") : "none"}
            >
              {narrow ? (
                c.label // which is not visible there: the list "Sort by" sorts
              ) : (
                <button
                  type="button"
                  class="plain"
                  onClick={() => set({ column: c.id, descending: choice.column === c.id ? !choice.descending : Boolean(c.numeric) })}
                >
                  {c.label}
                  <span aria-hidden="true">{choice.column === c.id ? (choice.descending ? " ▼" : " ▲") : ""}</span>
                </button>
              )}
            </div>
          ))}
        </div>
      </div>
      <div
        role="rowgroup"
        class="scroll"
        ref={box}
        tabIndex={0}
        onKeyDown={move}
        onScroll={(e) => setTop(e.currentTarget.scrollTop)}
      >
        <div role="presentation" style={{ height: `${rows.length * height}px`, position: "relative" }}>
          {rows.slice(first, last).map((r, i) => (
            <PipelineRow key={`${r.namespace}/${r.name}`} row={r} index={first + i} top={(first + i) * height} />
          ))}
        </div>
      </div>
      {rows.length === 0 && <p class="muted empty">No pipeline matches.</p>}
    </div>
  );
}

function PipelineRow({ row, index, top }: { row: Row; index: number; top: number }) {
  const why = row.health === "ready" ? "" : row.met === "False" && row.ready === "True" ? row.metMessage : `${row.reason}: ${row.message}`;
  return (
    <div role="row" class="grid entry" aria-rowindex={index + 2} data-row={index} style={{ transform: `translateY(${top}px)` }}>
      <div role="cell" class="name">
        <a href={address("pipeline", row.namespace, row.name)}>{row.name}</a>
        <span class="muted"> {row.namespace}</span>
      </div>
      <div role="cell" class="guarantee">
        {row.guarantee}
        {row.met === "False" && <span class="broken"> not met</span>}
      </div>
      <div role="cell" class="state">
        <Badge health={row.health} />
      </div>
      <div role="cell" class="numeric lag">
        <span class="narrow-only muted">lag </span>
        {number(row.lag)}
      </div>
      <div role="cell" class="numeric rate">{rate(row.rate)}</div>
      <div role="cell" class="why" title={why}>
        {why}
      </div>
    </div>
  );
}

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(matchMedia(NARROW).matches);
  useEffect(() => {
    const query = matchMedia(NARROW);
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return narrow;
}
