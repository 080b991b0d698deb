// The page: its header, and the view that the address names.

import { useEffect, useRef, useState } from "preact/hooks";
import type { State } from "./api";
import { IS_RECORDED, usePoll } from "./api";
import { PipelineDetail } from "./detail";
import { LiveView } from "./live";
import { FIRST_CHOICE, PipelineList } from "./list";
import { PlanView } from "./plan";
import { Problem } from "./problem";
import { address, useRoute } from "./route";

const EVERY_MS = 2000;

export function App() {
  const { view, namespace, name } = useRoute();
  const { data, error } = usePoll<State>("api/state", EVERY_MS);
  const [choice, setChoice] = useState(FIRST_CHOICE);
  const local = data?.kind === "local";
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);

  useEffect(() => {
    document.title = `${name || (view === "plan" ? "Plan" : local ? "Live" : "Pipelines")} – Ackwright`;
  }, [view, namespace, name, local]);

  useEffect(() => {
    if (!first.current) main.current?.querySelector<HTMLElement>("h1")?.focus();
    first.current = false;
  }, [view, namespace, name]);

  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.querySelector<HTMLElement>("h1")?.focus(); }}>
        Skip to the content
      </a>
      <header>
        <p class="brand">Ackwright</p>
        <nav aria-label="Views">
          <a href={address("")} aria-current={view === "" || view === "pipeline" ? "page" : undefined}>
            {local ? "Live" : "Pipelines"}
          </a>
          {!IS_RECORDED && (
            <a href={address("plan")} aria-current={view === "plan" ? "page" : undefined}>
              Plan
            </a>
          )}
          <a href={IS_RECORDED ? "delivery-simulator.html" : "simulator"}>Simulator</a>
        </nav>
        <p class="source muted">{data?.title}</p>
      </header>
      <main ref={main} id="main">
        <Problem text={(local && view === "" ? null : error) ?? data?.problem ?? null} />
        {view === "pipeline" ? (
          <PipelineDetail key={`${namespace}/${name}`} namespace={namespace} name={name} recordedAt={data?.at ?? null} local={local} />
        ) : view === "plan" ? (
          <PlanView namespace={namespace} name={name} />
        ) : local ? (
          <LiveView />
        ) : (
          <>
            <h1 tabIndex={-1}>Pipelines</h1>
            {data ? <PipelineList state={data} choice={choice} onChoice={setChoice} /> : !error && <p role="status">Reading the pipelines …</p>}
          </>
        )}
      </main>
    </>
  );
}
