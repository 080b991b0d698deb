// The transition function agrees with the Python model: every step within a few actions, and long random successions.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { counts } from "../src/model/counts";
import { initial, refusal, type Settings, type State } from "../src/model/state";
import { actions, step } from "../src/model/step";
import scenarios from "../src/scenarios.json";
import { SENTENCES } from "../src/sentences";

type Golden = {
  refusals: [Settings, string][];
  accepted: number;
  depth: number;
  exhaustive: { settings: Settings; steps: number; hash: string }[];
  walks: { settings: Settings; steps: [string, string, number, string][] }[];
};
const golden: Golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8"));

/** JSON with sorted keys, as Python's json.dumps(sort_keys=True, separators=(",", ":")). */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${fields.map(([k, v]) => `${JSON.stringify(k)}:${canonical(v)}`).join(",")}}`;
}

const digest = (value: unknown) => createHash("sha256").update(canonical(value)).digest("hex").slice(0, 16);
const observed = (s: Settings, t: State) => [t, counts(s, t), actions(s, t)];

function exhaustive(s: Settings): { steps: number; hash: string } {
  let frontier = [initial(s)];
  const known = new Set(frontier.map(canonical));
  const lines = new Set<string>();
  for (let depth = 0; depth < golden.depth; depth += 1) {
    const following: State[] = [];
    for (const t of frontier) {
      for (const action of actions(s, t)) {
        const { state, reason, number } = step(s, t, action);
        lines.add(digest([t, action, reason, number, observed(s, state)]));
        const key = canonical(state);
        if (!known.has(key)) {
          known.add(key);
          following.push(state);
        }
      }
    }
    frontier = following;
  }
  return { steps: lines.size, hash: digest([...lines].sort()) };
}

test("settings that Kafka refuses are refused for the same reason", () => {
  expect(golden.accepted).toBeGreaterThan(200);
  for (const [settings, reason] of golden.refusals) expect(refusal(settings)).toBe(reason);
  for (const { settings } of golden.walks) expect(refusal(settings)).toBeNull();
});

test.each(golden.exhaustive)("every short succession: $settings.acks, $settings.commit, $steps steps", (x) => {
  expect(exhaustive(x.settings)).toEqual({ steps: x.steps, hash: x.hash });
});

test("random successions", () => {
  expect(golden.walks.length).toBeGreaterThan(200);
  for (const { settings, steps } of golden.walks) {
    let t = initial(settings);
    const path: string[] = [];
    for (const [action, reason, number, hash] of steps) {
      path.push(action);
      const next = step(settings, t, action);
      t = next.state;
      const actual = [next.reason, next.number, digest(observed(settings, t))];
      expect(actual, `${JSON.stringify(settings)} ${path.join(" ")}`).toEqual([reason, number, hash]);
    }
  }
});

test("the named successions end as in the Python model", () => {
  for (const x of scenarios) {
    const settings = x.settings as Settings;
    const end = x.actions.reduce((t, action) => step(settings, t, action).state, initial(settings));
    expect(counts(settings, end), x.name).toEqual(x.end);
  }
});

test("a step that is not possible is refused", () => {
  const { settings } = golden.walks[0]!;
  expect(() => step(settings, initial(settings), "deliver")).toThrow("not possible");
});

test("control: another transition changes the hash", () => {
  const { settings, hash } = golden.exhaustive[0]!;
  expect(exhaustive(settings).hash).toBe(hash);
  expect(exhaustive({ ...settings, min_insync: 1 }).hash).not.toBe(hash);
});

test("every reason has a sentence", () => {
  const reasons = new Set([
    ...golden.walks.flatMap((w) => w.steps.map(([, reason]) => reason)),
    ...golden.refusals.map(([, reason]) => reason),
  ]);
  expect([...reasons].sort()).toEqual(Object.keys(SENTENCES).sort());
});
