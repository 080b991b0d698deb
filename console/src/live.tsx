// What a command on this machine does, while it happens: its stages with figures, kills, events and results.

import { useEffect, useRef, useState } from "preact/hooks";
import { request } from "./api";
import { Chart } from "./chart";
import { Problem } from "./problem";
import { address } from "./route";
import { Table } from "./table";
import { number, rate } from "./text";

interface Sample {
  readonly number: number;
  readonly at: number; // seconds since the epoch
  readonly done: number;
  readonly rate: number;
  readonly lag: number;
}

interface Stage {
  readonly name: string;
  readonly pipeline: string | null; // namespace/name
  readonly total: number | null;
  readonly done: number;
  readonly lag: number;
  readonly rate: number;
  readonly detail: string;
  readonly kills: number;
  readonly over: boolean;
  readonly samples: readonly Sample[];
}

interface Entry {
  readonly number: number;
  readonly at: number; // seconds since the epoch
  readonly kind: "stage" | "event" | "kill" | "failure";
  readonly text: string;
  readonly stage: number;
}

interface Activity {
  readonly number: number;
  readonly stages: readonly Stage[];
  readonly entries: readonly Entry[];
  readonly results: { readonly columns: string[]; readonly rows: string[][]; readonly notes: string[] } | null;
}

const EVERY_MS = 500;
const ENTRIES = 200; // shown
const NOTHING: Activity = { number: 0, stages: [], entries: [], results: null };

/** The activity so far: each answer has only what is new. */
function merged(old: Activity, news: Activity): Activity {
  return {
    ...news,
    entries: [...old.entries, ...news.entries],
    stages: news.stages.map((stage, i) => ({ ...stage, samples: [...(old.stages[i]?.samples ?? []), ...stage.samples] })),
  };
}

function useActivity(): { readonly activity: Activity; readonly error: string | null } {
  const [activity, setActivity] = useState(NOTHING);
  const [error, setError] = useState<string | null>(null);
  const latest = useRef(NOTHING);
  useEffect(() => {
    let stopped = false;
    let timer = 0;
    const read = async () => {
      try {
        const news = await request<Activity>(`api/activity?after=${latest.current.number}`);
        if (stopped) return;
        latest.current = merged(latest.current, news);
        setActivity(latest.current);
        setError(null);
      } catch (e) {
        if (!stopped) setError((e as Error).message);
      }
      if (!stopped) timer = window.setTimeout(read, EVERY_MS);
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, []);
  return { activity, error };
}

export function LiveView() {
  const { activity, error } = useActivity();
  const { stages, entries, results } = activity;
  const started = entries[0]?.at ?? 0;
  const current = stages.at(-1);
  // By this page's clock: how long it has shown the current stage. Some take a minute without any other change.
  const shown = useRef({ stages: 0, since: Date.now() });
  if (shown.current.stages !== stages.length) shown.current = { stages: stages.length, since: Date.now() };
  const seconds = Math.round((Date.now() - shown.current.since) / 1000);
  return (
    <>
      <h1 tabIndex={-1}>Live</h1>
      <Problem text={error} />
      <p role="status" class="note">
        {results ? "The command has finished its work." : current ? `Now: ${current.name}` : "Reading …"}
        {!results && current && (
          <span class="muted" aria-hidden="true">
            {current.detail && `, ${current.detail}`}, for {seconds} s
          </span>
        )}
      </p>
      {results && results.columns.length > 0 && (
        <section aria-labelledby="results">
          <h2 id="results">Results</h2>
          <Table label="Results" columns={results.columns} numeric={[1, 2, 3, 4, 5, 6, 7]} rows={results.rows} />
          {results.notes.map((n) => (
            <p key={n} class="note">
              {n}
            </p>
          ))}
        </section>
      )}
      <div class="stages">
        {stages.map((stage, i) =>
          stage.samples.length > 0 ? (
            <StageView key={i} stage={stage} started={started} kills={entries.filter((e) => e.stage === i && e.kind === "kill")} />
          ) : null,
        )}
      </div>
      <section aria-labelledby="happened">
        <h2 id="happened">What happened</h2>
        <div class="log" role="log" aria-labelledby="happened" tabIndex={0}>
          <ol>
            {entries
              .slice(-ENTRIES)
              .reverse()
              .map((e) => (
                <li key={e.number} class={e.kind}>
                  <span class="muted">{(e.at - started).toFixed(1)} s</span>{" "}
                  {e.kind === "kill" && <span aria-hidden="true">✗ </span>}
                  {e.text}
                </li>
              ))}
          </ol>
        </div>
      </section>
    </>
  );
}

/** started: when the command did, from which the log counts, too. */
function StageView({ stage, started, kills }: { stage: Stage; started: number; kills: readonly Entry[] }) {
  const [namespace = "", name = ""] = stage.pipeline?.split("/") ?? [];
  const share = stage.total ? Math.min(100, (100 * stage.done) / stage.total) : 0;
  return (
    <section aria-label={stage.name}>
      <h2>
        {stage.pipeline ? <a href={address("pipeline", namespace, name)}>{stage.name}</a> : stage.name}
        {stage.over && <span class="muted">: ended</span>}
      </h2>
      <div
        class="progress"
        role="progressbar"
        aria-label={`Records of ${stage.name}`}
        aria-valuenow={Math.round(share)}
        aria-valuetext={`${number(stage.done)} of ${number(stage.total)} records`}
      >
        <span style={{ width: `${share}%` }} />
      </div>
      <p>
        {number(stage.done)} of {number(stage.total)} records, {rate(stage.rate)}, lag {number(stage.lag)}
        {stage.kills > 0 && (
          <>
            , <strong class="broken">{stage.kills === 1 ? "1 kill" : `${stage.kills} kills`}</strong>
          </>
        )}
        {stage.detail && `, ${stage.detail}`}
      </p>
      <Chart
        title="Rate"
        times={stage.samples.map((s) => s.at - started)}
        sinceStart
        series={[{ label: "records/s", values: stage.samples.map((s) => s.rate), color: "--second" }]}
        marks={kills.map((k) => k.at - started)}
        markLabel="a kill"
      />
    </section>
  );
}
