// The server's JSON (operator/ackwright/console/views.py), and how it is polled.

import { useEffect, useState } from "preact/hooks";

export type Health = "ready" | "waiting" | "attention" | "suspended";

export interface Row {
  readonly namespace: string;
  readonly name: string;
  readonly guarantee: string;
  readonly health: Health;
  readonly ready: string;
  readonly met: string;
  readonly reason: string;
  readonly message: string;
  readonly metMessage: string;
  readonly lag: number | null;
  readonly rate: number | null;
  readonly batch: number | null;
  readonly observedAt: string | null;
  readonly restarts: number | null;
  readonly topicsReady: string | null;
}

export interface State {
  readonly kind: "cluster" | "recorded" | "local";
  readonly title: string;
  readonly at: string | null; // when the state was recorded
  readonly problem: string | null;
  readonly pipelines: readonly Row[];
}

export interface Setting {
  readonly name: string;
  readonly value: string;
  readonly reason: string;
}

export interface Link {
  readonly name: string;
  readonly subject: string;
  readonly caveat: string | null;
  readonly weakest: boolean;
  readonly settings: readonly Setting[];
}

export interface Chain {
  readonly afterACrash: string;
  readonly position: string;
  readonly readerHasTo: string;
  readonly links: readonly Link[];
}

export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly good: boolean;
  readonly expected: boolean; // it belongs to a change, or was asked for
  readonly reason: string;
  readonly message: string;
  readonly since: string;
  readonly remedy: { readonly cause: string; readonly remedy: string; readonly command: string } | null;
}

export interface Lane {
  readonly topic: string;
  readonly partition: number;
  readonly position: number;
  readonly end: number | null;
  readonly lag: number | null;
}

export interface Topic {
  readonly name: string;
  readonly partitions: number;
  readonly replicationFactor: number;
  readonly minInsyncReplicas: number;
  readonly inSyncReplicas: number;
  readonly moving?: number;
}

export interface Pod {
  readonly name: string;
  readonly role: string;
  readonly phase: string;
  readonly why: string | null;
  readonly ready: boolean;
  readonly restarts: number;
  readonly node: string | null;
}

export interface KubernetesEvent {
  readonly at: string;
  readonly type: string;
  readonly reason: string;
  readonly message: string;
  readonly count: number;
  readonly object: string;
}

export interface Audit {
  readonly name: string;
  readonly at: string;
  readonly verdict: string;
  readonly sent?: number;
  readonly expected?: number;
  readonly delivered?: number;
  readonly lost?: number;
  readonly duplicated?: number;
  readonly why?: string;
  readonly notes?: readonly string[];
}

export interface Progress {
  readonly state: string;
  readonly driver: number;
  readonly batchId: number;
  readonly batchSeconds: number;
  readonly lag: number;
  readonly records: number;
  readonly batches: number;
  readonly restarts: number;
  readonly recordsPerSecond: number;
  readonly abandonedRecords: number;
  readonly expiredRecords: number;
  readonly malformedRecords: number;
  readonly deadLetters: number;
  readonly lastError: { readonly reason: string; readonly message: string } | null;
}

export interface Detail {
  readonly row: Row;
  readonly current: boolean;
  readonly conditions: readonly Condition[];
  readonly chain: Chain | null;
  readonly invalid: string | null;
  readonly yaml: string;
  readonly group: string | null;
  readonly lanes: readonly Lane[];
  readonly topics: readonly Topic[];
  readonly driver: { readonly pod: string; readonly node?: string; readonly number?: number; readonly restarts: number; readonly lastError?: string } | null;
  readonly progress: Progress | null;
  readonly pods: readonly Pod[];
  readonly events: readonly KubernetesEvent[];
  readonly audits: readonly Audit[];
  readonly missing: readonly string[];
}

export interface Polled<T> {
  readonly data: T | null;
  readonly error: string | null; // why the data are missing or no longer current
  readonly at: number; // when the server was asked last, in milliseconds; 0: not yet
}

const LIMIT_MS = 20_000; // of one request

// The answers by path, of the page in the documentation, which works without a server.
const EMBEDDED = document.querySelector("#recorded")?.textContent;
const RECORDED: Record<string, unknown> | null = EMBEDDED ? JSON.parse(EMBEDDED) : null;
export const IS_RECORDED = RECORDED !== null;

/** The answer of one request. Throws an Error with a sentence for people. */
export async function request<T>(path: string, init: RequestInit = {}): Promise<T> {
  const answer = await send(path, init);
  const value = await answer.json();
  if (!answer.ok) throw new Error(`${value.reason}: ${value.message}`);
  return value as T;
}

async function send(path: string, init: RequestInit): Promise<Response> {
  if (RECORDED) {
    const missing = { reason: "NotRecorded", message: "this page shows a recorded state only" };
    return new Response(JSON.stringify(RECORDED[path] ?? missing), { status: path in RECORDED ? 200 : 404 });
  }
  try {
    return await fetch(path, { ...init, signal: AbortSignal.timeout(LIMIT_MS) });
  } catch {
    throw new Error("The console does not answer: has the command ended? Start it again, and open its new address.");
  }
}

/** Reads the path again and again, as long as the page is visible. path null: nothing. */
export function usePoll<T>(path: string | null, everyMs: number): Polled<T> {
  const [polled, setPolled] = useState<Polled<T> & { path: string | null }>({ data: null, error: null, at: 0, path });
  useEffect(() => {
    if (path === null) return;
    let stopped = false;
    let timer = 0;
    let tag = "";
    const read = async () => {
      let next: Partial<Polled<T>>;
      try {
        const answer = await send(path, { headers: tag ? { "If-None-Match": tag } : {} });
        if (answer.status === 304) next = { error: null };
        else {
          const value = await answer.json();
          if (!answer.ok) throw new Error(`${value.reason}: ${value.message}`);
          tag = answer.headers.get("ETag") ?? "";
          next = { data: value, error: null };
        }
      } catch (e) {
        next = { error: (e as Error).message };
      }
      if (stopped) return;
      setPolled((old) => ({ ...(old.path === path ? old : { data: null, error: null }), ...next, at: Date.now(), path }));
      timer = window.setTimeout(read, document.hidden ? 10 * everyMs : everyMs);
    };
    const wake = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void read();
    };
    void read();
    document.addEventListener("visibilitychange", wake);
    return () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
    };
  }, [path, everyMs]);
  return polled.path === path ? polled : { data: null, error: null, at: 0 };
}
