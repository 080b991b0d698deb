// The successions of the protocol's model; tests/simulator/protocol.py writes them.

import json from "../protocol.json";

export interface View {
  readonly member: number | null;
  readonly drivers: readonly { name: string; mode: string; notes: string[]; attempts: string[] }[];
  readonly lanes: readonly {
    position: number | null;
    by: string;
    pending: [number, string][];
    rows: { from: number; until: number; open: string }[];
    recorded: boolean;
  }[];
  readonly ids: readonly { name: string; epoch: number; state: string }[];
  readonly late: readonly string[];
}

export interface Succession {
  readonly first: View;
  readonly steps: readonly { label: string; why: string; view: View | null }[];
  readonly violation: string | null;
}

export interface Rule {
  readonly number: number;
  readonly rule: string;
  readonly off: string;
  readonly variant: string;
  readonly without?: Succession;
  readonly with?: Succession;
}

export const RULES = json.rules as unknown as Rule[];
export const STORIES = json.stories as unknown as (Succession & { title: string })[];
