// One pipeline: conditions with remedies, its chain, what happens now, lanes, topics, Events, audits.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Audit, Condition, Detail, Lane, Topic } from "./api";
import { IS_RECORDED, usePoll } from "./api";
import { Badge } from "./badge";
import { ChainView } from "./chain";
import { Chart } from "./chart";
import { Problem } from "./problem";
import { address } from "./route";
import { Table } from "./table";
import { ago, counted, number, rate } from "./text";

const EVERY_MS = 2000;
const POINTS = 900; // of the chart: half an hour
const LANES = 100; // shown at first

interface Point {
  readonly at: number; // seconds
  readonly lag: number | null;
  readonly rate: number | null;
  readonly driver: number | null; // its number; another one has taken the pipeline if it changes
  readonly restarts: number | null; // of its query
}

interface Change {
  readonly at: number; // seconds
  readonly text: string;
}

/** The takeovers and restarts between the points; a driver that does not answer for a while is the same one. */
function changes(points: readonly Point[]): Change[] {
  const result: Change[] = [];
  let before: Point | null = null;
  for (const point of points) {
    if (point.driver === null) continue;
    if (before && point.driver !== before.driver) {
      result.push({ at: point.at, text: `Driver ${point.driver} has taken the pipeline from driver ${before.driver}.` });
    } else if (before && (point.restarts ?? 0) > (before.restarts ?? 0)) {
      result.push({ at: point.at, text: `The query of driver ${point.driver} has restarted.` });
    }
    before = point;
  }
  return result;
}

export function PipelineDetail(props: { namespace: string; name: string; recordedAt: string | null; local: boolean }) {
  const { namespace, name, recordedAt, local } = props;
  const query = new URLSearchParams({ namespace, name });
  const { data, error, at } = usePoll<Detail>(`api/pipeline?${query}`, EVERY_MS);
  const points = usePoints(data, at);
  return (
    <>
      <p>
        <a href={address("")}>{local ? "Live" : "All pipelines"}</a>
      </p>
      <h1 tabIndex={-1}>
        {name} <span class="muted">{namespace}</span>
      </h1>
      <Problem text={error} />
      {data ? <Sections detail={data} points={recordedAt ? [] : points} now={recordedAt ? Date.parse(recordedAt) : at} /> : !error && <p role="status">Reading the pipeline …</p>}
    </>
  );
}

function usePoints(detail: Detail | null, at: number): readonly Point[] {
  const points = useRef<Point[]>([]);
  const [, redraw] = useState(0);
  useEffect(() => {
    if (!detail) return;
    const lag = detail.progress?.lag ?? detail.row.lag;
    const speed = detail.progress?.recordsPerSecond ?? detail.row.rate;
    points.current = [
      ...points.current.slice(1 - POINTS),
      { at: at / 1000, lag, rate: speed, driver: detail.progress?.driver || null, restarts: detail.progress?.restarts ?? null },
    ];
    redraw(at);
  }, [at]);
  return points.current;
}

function Sections({ detail, points, now }: { detail: Detail; points: readonly Point[]; now: number }) {
  const { row } = detail;
  return (
    <>
      <p class="headline">
        <Badge health={row.health} /> {row.guarantee}
        {row.met === "False" && <strong class="broken"> not met</strong>}
        {!IS_RECORDED && <a href={address("plan", row.namespace, row.name)}>Plan an edit</a>}
      </p>
      {!detail.current && <p class="note">The operator has not reconciled the present spec yet.</p>}
      {detail.invalid && (
        <p class="note bad">The present spec is invalid; the last valid one is in force. {detail.invalid}</p>
      )}
      {detail.conditions.length > 0 && (
        <section aria-labelledby="conditions">
          <h2 id="conditions">Conditions</h2>
          <ul class="conditions">
            {detail.conditions.map((c) => (
              <ConditionView key={c.type} condition={c} name={row.name} namespace={row.namespace} now={now} />
            ))}
          </ul>
        </section>
      )}
      <section aria-labelledby="now">
        <h2 id="now">Now</h2>
        <Now detail={detail} points={points} now={now} />
      </section>
      {detail.chain && (
        <section aria-labelledby="chain">
          <h2 id="chain">From producer to consumer</h2>
          <ChainView chain={detail.chain} />
        </section>
      )}
      <section aria-labelledby="lanes">
        <h2 id="lanes">Lanes</h2>
        <Lanes lanes={detail.lanes} group={detail.group} />
      </section>
      <section aria-labelledby="topics">
        <h2 id="topics">Topics</h2>
        <Topics topics={detail.topics} />
      </section>
      <section aria-labelledby="events">
        <h2 id="events">Events</h2>
        <Table
          label="Events"
          columns={["When", "Reason", "Message", "Object"]}
          rows={detail.events.map((e) => [
            ago(e.at, now),
            <span class={e.type === "Warning" ? "broken" : ""}>
              {e.reason}
              {e.count > 1 ? ` (${e.count} times)` : ""}
            </span>,
            e.message,
            e.object,
          ])}
          empty="Kubernetes has no Event about this pipeline. It deletes Events after an hour."
        />
      </section>
      <section aria-labelledby="audits">
        <h2 id="audits">Audits</h2>
        <Audits audits={detail.audits} row={row} now={now} />
      </section>
      {detail.missing.length > 0 && (
        <section aria-labelledby="missing">
          <h2 id="missing">Not read</h2>
          <ul>
            {detail.missing.map((m) => (
              <li key={m}>{m}</li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function ConditionView(props: { condition: Condition; name: string; namespace: string; now: number }) {
  const { condition: c, name, namespace, now } = props;
  const command = c.remedy?.command.replace(/\bNAME\b/, `${name} -n ${namespace}`);
  return (
    <li class={c.good ? "good" : c.status === "Unknown" || c.type === "Reconciling" || c.expected ? "pending" : "bad"}>
      <p>
        <strong>{c.type}</strong> {c.status} <span class="reason">{c.reason}</span>{" "}
        <span class="muted">{ago(c.since, now)}</span>
      </p>
      {c.message && <p>{c.message}</p>}
      {c.remedy && (
        <p class="remedy">
          <strong>What to do:</strong> {c.remedy.remedy}
          {command && (
            <>
              {" "}
              <code>{command}</code>
            </>
          )}
        </p>
      )}
    </li>
  );
}

function Now({ detail, points, now }: { detail: Detail; points: readonly Point[]; now: number }) {
  const { progress, row, driver } = detail;
  const latest = progress?.batchId ?? row.batch;
  const batch = latest !== null && latest >= 0 ? latest : null; // before the first one a driver reports -1
  const events = changes(points);
  const marks = events.map((e) => e.at);
  const counters: [string, number | undefined][] = [
    ["abandoned", progress?.abandonedRecords],
    ["expired", progress?.expiredRecords],
    ["malformed", progress?.malformedRecords],
    ["dead letters", progress?.deadLetters],
  ];
  return (
    <>
      <dl class="figures">
        <Figure name="lag" value={number(progress?.lag ?? row.lag)} />
        <Figure name="rate" value={rate(progress?.recordsPerSecond ?? row.rate)} />
        <Figure name="batch" value={number(batch)} />
        {progress && batch !== null && <Figure name="last batch" value={`${progress.batchSeconds} s`} />}
        {progress && <Figure name="records" value={number(progress.records)} />}
        {progress && <Figure name="driver" value={progress.driver ? `${progress.state}, number ${progress.driver}` : progress.state} />}
        {progress && <Figure name="query restarts" value={number(progress.restarts)} />}
        {counters.map(([name, value]) => (value ? <Figure key={name} name={name} value={number(value)} /> : null))}
      </dl>
      {!progress && row.observedAt && <p class="muted">As the driver reported {ago(row.observedAt, now)}.</p>}
      {progress?.lastError && (
        <p class="note bad">
          Last error: {progress.lastError.reason}: {progress.lastError.message}
        </p>
      )}
      <div class="charts">
        <Chart
          title="Lag"
          times={points.map((p) => p.at)}
          series={[{ label: "offsets", values: points.map((p) => p.lag), color: "--accent" }]}
          marks={marks}
          markLabel="takeover or restart"
        />
        <Chart
          title="Rate"
          times={points.map((p) => p.at)}
          series={[{ label: "records/s", values: points.map((p) => p.rate), color: "--second" }]}
          marks={marks}
          markLabel="takeover or restart"
        />
      </div>
      {events.length > 0 && (
        <ul aria-label="Since the page was opened">
          {events.map((e) => (
            <li key={e.at}>
              {e.text} <span class="muted">{ago(new Date(1000 * e.at).toISOString(), now)}</span>
            </li>
          ))}
        </ul>
      )}
      {driver && (
        <p>
          Driver {driver.pod} on {driver.node ?? "no node"}, number {driver.number ?? "?"},{" "}
          {counted(driver.restarts, "restart")}.{driver.lastError && ` Last error: ${driver.lastError}`}
        </p>
      )}
      {detail.pods.length > 0 && (
        <Table
          label="Pods"
          columns={["Pod", "Role", "Phase", "Restarts", "Node"]}
          numeric={[3]}
          rows={detail.pods.map((p) => [
            p.name,
            p.role,
            `${p.phase}${p.why ? `: ${p.why}` : p.phase === "Running" && !p.ready ? ", not ready" : ""}`,
            number(p.restarts),
            p.node ?? "–",
          ])}
        />
      )}
    </>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Lanes({ lanes, group }: { lanes: readonly Lane[]; group: string | null }) {
  const [all, setAll] = useState(false);
  const lagging = [...lanes].sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1) || a.topic.localeCompare(b.topic) || a.partition - b.partition);
  const most = Math.max(1, ...lanes.map((l) => l.lag ?? 0));
  const lags = lanes.some((l) => l.lag !== null);
  return (
    <>
      <p class="muted">
        A lane is one source partition of one pipeline; its position is its committed offset
        {group ? `, of group ${group}` : ""}.
      </p>
      <Table
        label="Lanes"
        columns={["Lane", "Position", ...(lags ? ["End", "Lag", ""] : [])]}
        numeric={[1, 2, 3]}
        rows={(all ? lagging : lagging.slice(0, LANES)).map((l) => [
          `${l.topic}-${l.partition}`,
          number(l.position),
          ...(lags
            ? [
                number(l.end),
                number(l.lag),
                <span class="bar" aria-hidden="true">
                  <span style={{ width: `${(100 * (l.lag ?? 0)) / most}%` }} />
                </span>,
              ]
            : []),
        ])}
        empty="The driver's report was not read, which has the positions."
      />
      {!all && lanes.length > LANES && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {number(lanes.length)} lanes
        </button>
      )}
    </>
  );
}

function Topics({ topics }: { topics: readonly Topic[] }) {
  return (
    <Table
      label="Topics"
      columns={["Topic", "Partitions", "Replicas", "In sync", "Minimum", "Moving"]}
      numeric={[1, 2, 3, 4, 5]}
      rows={topics.map((t) => [
        t.name,
        number(t.partitions),
        number(t.replicationFactor),
        <span class={t.inSyncReplicas < t.minInsyncReplicas ? "broken" : t.inSyncReplicas < t.replicationFactor ? "warned" : ""}>
          {number(t.inSyncReplicas)} of {number(t.replicationFactor)}
          {t.inSyncReplicas < t.minInsyncReplicas ? ", writes are refused" : ""}
        </span>,
        number(t.minInsyncReplicas),
        number(t.moving ?? 0),
      ])}
      empty="No topic has been observed yet."
    />
  );
}

function Audits({ audits, row, now }: { audits: readonly Audit[]; row: { name: string; namespace: string }; now: number }) {
  return (
    <>
      <Table
        label="Audits"
        columns={["When", "Verdict", "Expected", "Delivered", "Lost", "Duplicated", "Notes"]}
        numeric={[2, 3, 4, 5]}
        rows={audits.map((a) => [
          ago(a.at, now),
          <strong class={a.verdict === "held" ? "held" : a.verdict === "running" ? "" : "broken"}>{a.verdict}</strong>,
          number(a.expected),
          number(a.delivered),
          number(a.lost),
          number(a.duplicated),
          [a.why, ...(a.notes ?? [])].filter(Boolean).join("; "),
        ])}
        empty="No audit of the last hour."
      />
      <p class="muted">
        <code>
          ackwright audit {row.name} -n {row.namespace}
        </code>{" "}
        counts lost and duplicated records again.
      </p>
    </>
  );
}
