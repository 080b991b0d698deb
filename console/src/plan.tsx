// What `ackwright plan` says of a text before it is applied, and what the edit takes.

import { useEffect, useState } from "preact/hooks";
import type { Chain, Detail } from "./api";
import { request } from "./api";
import { ChainView } from "./chain";
import { Problem } from "./problem";
import { address } from "./route";
import { Table } from "./table";

interface Finding {
  readonly line: number | null;
  readonly column: number | null;
  readonly reason: string;
  readonly message: string;
}

interface Plan {
  readonly errors: readonly Finding[];
  readonly warnings?: readonly Finding[];
  readonly chain?: Chain;
  readonly summary?: {
    readonly pipeline: string;
    readonly flow: string;
    readonly guarantee: string;
    readonly reader: string;
    readonly survives: string;
    readonly costs: readonly string[];
    readonly weakest_link: string;
    readonly not_guaranteed: readonly string[];
  };
  readonly edit?: {
    readonly takes: string | null;
    readonly other?: string; // the text declares another pipeline than this one
    readonly changes: readonly {
      readonly field: string;
      readonly before: string | null;
      readonly after: string | null;
      readonly effect: string;
      readonly why: string;
    }[];
  } | null;
}

const EFFECTS: Record<string, string> = {
  live: "The job continues without an interruption.",
  restart: "The job drains, and its next driver resumes from the committed offsets.",
  "new state": "The stored state no longer fits.",
  immutable: "The API server refuses this edit: it takes another pipeline.",
};

export function PlanView({ namespace, name }: { namespace: string; name: string }) {
  const [text, setText] = useState("");
  const [plan, setPlan] = useState<Plan | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const query = new URLSearchParams({ namespace, name });

  useEffect(() => {
    setPlan(null);
    setText("");
    if (!name) return;
    request<Detail>(`api/pipeline?${query}`).then(
      (d) => setText((old) => old || d.yaml),
      (e: Error) => setProblem(e.message),
    );
  }, [namespace, name]);

  async function run(): Promise<void> {
    try {
      const path = name ? `api/plan?${query}` : "api/plan";
      setPlan(await request<Plan>(path, { method: "POST", body: text, headers: { "Content-Type": "application/yaml" } }));
      setProblem(null);
    } catch (e) {
      setProblem((e as Error).message);
    }
  }

  return (
    <>
      <p>
        <a href={name ? address("pipeline", namespace, name) : address("")}>{name || "All pipelines"}</a>
      </p>
      <h1 tabIndex={-1}>{name ? `Plan an edit of ${name}` : "Plan a pipeline"}</h1>
      <p>Nothing is applied: this shows what the text compiles to, and what applying it would do.</p>
      <label class="editor">
        <span>Pipeline as YAML</span>
        <textarea
          rows={20}
          spellcheck={false}
          value={text}
          onInput={(e) => setText(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void run();
          }}
        />
      </label>
      <p>
        <button type="button" class="primary" onClick={() => void run()}>
          Plan
        </button>{" "}
        <span class="muted">or Ctrl+Enter</span>
      </p>
      <Problem text={problem} />
      <div role="status">{plan && <Outcome plan={plan} />}</div>
      {plan && <Result plan={plan} />}
    </>
  );
}

function Outcome({ plan }: { plan: Plan }) {
  if (plan.errors.length) return <p class="note bad">{plan.errors.length === 1 ? "1 error" : `${plan.errors.length} errors`}</p>;
  if (plan.edit?.other) return <p class="note">The text declares another pipeline than {plan.edit.other}.</p>;
  if (!plan.edit) return <p class="note good">The text is valid.</p>;
  if (!plan.edit.takes) return <p class="note good">Nothing changes.</p>;
  return (
    <p class={`note ${plan.edit.takes === "immutable" ? "bad" : ""}`}>
      {plan.edit.takes}: {EFFECTS[plan.edit.takes]}
    </p>
  );
}

function Result({ plan }: { plan: Plan }) {
  const s = plan.summary;
  return (
    <>
      <Findings title="Errors" findings={plan.errors} />
      <Findings title="Warnings" findings={plan.warnings ?? []} />
      {plan.edit && plan.edit.changes.length > 0 && (
        <section aria-labelledby="changes">
          <h2 id="changes">What changes</h2>
          <Table
            label="Changes"
            columns={["Field", "Before", "After", "Effect", "Why"]}
            rows={plan.edit.changes.map((c) => [c.field, c.before ?? "absent", c.after ?? "absent", c.effect, c.why])}
          />
        </section>
      )}
      {s && (
        <section aria-labelledby="summary">
          <h2 id="summary">{s.pipeline}</h2>
          <dl class="summary">
            {(
              [
                ["flow", [s.flow]],
                ["guarantee", [s.guarantee]],
                ["reader has to", [s.reader]],
                ["survives", [s.survives]],
                ["costs", s.costs],
                ["weakest link", [s.weakest_link]],
                ["not guaranteed", s.not_guaranteed],
              ] as [string, readonly string[]][]
            ).map(([name, lines]) =>
              lines.length ? (
                <div key={name}>
                  <dt>{name}</dt>
                  {lines.map((line) => (
                    <dd key={line}>{line}</dd>
                  ))}
                </div>
              ) : null,
            )}
          </dl>
        </section>
      )}
      {plan.chain && (
        <section aria-labelledby="chain">
          <h2 id="chain">From producer to consumer</h2>
          <ChainView chain={plan.chain} />
        </section>
      )}
    </>
  );
}

function Findings({ title, findings }: { title: string; findings: readonly Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <ul class="findings">
        {findings.map((f) => (
          <li key={f.message}>
            {f.line !== null && (
              <strong>
                line {f.line}, column {f.column}:{" "}
              </strong>
            )}
            {f.message}
          </li>
        ))}
      </ul>
    </section>
  );
}
