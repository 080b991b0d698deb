// The words of the page for settings and actions.

import type { Settings } from "../model/state";

export interface Field {
  readonly name: keyof Settings;
  readonly label: string;
  readonly options: readonly (readonly [value: string, label: string])[];
}

const ON_OFF = [
  ["true", "on"],
  ["false", "off"],
] as const;

export const FIELDS: readonly Field[] = [
  { name: "acks", label: "acks", options: [["0", "0"], ["1", "1"], ["all", "all"]] },
  { name: "retries", label: "retries", options: [["true", "until delivery.timeout.ms"], ["false", "0"]] },
  { name: "idempotence", label: "enable.idempotence", options: ON_OFF },
  { name: "transactions", label: "transactions of the producer", options: ON_OFF },
  { name: "replicas", label: "replicas", options: [["1", "1"], ["2", "2"], ["3", "3"]] },
  { name: "min_insync", label: "min.insync.replicas", options: [["1", "1"], ["2", "2"], ["3", "3"]] },
  { name: "unclean", label: "unclean.leader.election.enable", options: ON_OFF },
  {
    name: "commit",
    label: "the consumer commits",
    options: [
      ["before", "before it processes"],
      ["after", "after it has processed"],
      ["transaction", "in the same transaction"],
    ],
  },
];

/** Settings from the values of the form. */
export function parse(values: Record<string, string>): Settings {
  const flag = (name: string) => values[name] === "true";
  return {
    acks: values.acks as Settings["acks"],
    retries: flag("retries"),
    idempotence: flag("idempotence"),
    transactions: flag("transactions"),
    replicas: Number(values.replicas),
    min_insync: Number(values.min_insync),
    unclean: flag("unclean"),
    commit: values.commit as Settings["commit"],
  };
}

export interface Group {
  readonly name: string;
  readonly actions: readonly (readonly [action: string, label: string])[];
}

/** The buttons, in groups. */
export function groups(settings: Settings): Group[] {
  const ids = Array.from({ length: settings.replicas }, (_, i) => i + 1);
  return [
    {
      name: "Producer",
      actions: [
        ["send", "Send a record"],
        ...(settings.transactions ? [["commit-transaction", "Commit the transaction"] as const] : []),
        ["time-out", "Let delivery.timeout.ms pass"],
        ["replace-producer", "Replace the producer while it hangs"],
        ["zombie-produces", "Bring the old producer back"],
      ],
    },
    {
      name: "Network",
      actions: [
        ["deliver", "Deliver the request"],
        ["lose-request", "Lose the request"],
        ["deliver-ack", "Deliver the acknowledgement"],
        ["lose-ack", "Lose the acknowledgement"],
      ],
    },
    {
      name: "Brokers",
      actions: [
        ["replicate", "Replicate to the followers"],
        ["kill-leader", "Kill the leader"],
        ...ids.map((b) => [`lag-${b}`, `Let broker ${b} fall behind`] as const),
        ...ids.map((b) => [`return-${b}`, `Bring broker ${b} back`] as const),
      ],
    },
    {
      name: "Consumer",
      actions: [
        ["poll", "Read a record"],
        ...(settings.commit === "before"
          ? ([["commit", "Commit the offset"], ["process", "Process the record"]] as const)
          : ([["process", "Process the record"], ["commit", "Commit the offset"]] as const)),
        ["kill-consumer", "Kill the consumer"],
        ["pause-consumer", "Replace the consumer while it hangs"],
        ["zombie-consumer", "Bring the old consumer back"],
      ],
    },
  ];
}

export function labelOf(settings: Settings, action: string): string {
  return groups(settings)
    .flatMap((g) => g.actions)
    .find(([name]) => name === action)![1];
}
