// A state of the protocol's model as cards.

import type { Card, Cell } from "../cards";
import type { View } from "./data";

export function cardsOf(v: View): Card[] {
  const member = v.member === null ? [] : [{ title: "Consumer group", state: memberOf(v.member), rows: [] }];
  return [
    ...v.drivers
      .filter((d) => d.mode !== "not started")
      .map((d): Card => {
        const running = d.attempts.map((a): Card["rows"][number] => ({ cells: [], empty: `runs: ${a}` }));
        return {
          title: d.name.replace("D", "Driver "),
          state: [d.mode, ...d.notes].join(", "),
          rows: running.length ? running : [{ cells: [], empty: "runs nothing" }],
        };
      }),
    ...member,
    {
      title: "Transactions",
      rows: v.ids.map((x) => ({ cells: [], empty: `${x.name}: epoch ${x.epoch}${x.state && `, ${x.state}`}` })),
    },
    ...v.lanes.map((lane, i): Card => {
      const pending = lane.pending.map(([value, by]) => `position ${value} pending, by ${by}`);
      const cells = lane.rows.flatMap((r) =>
        range(r.from, r.until).map(
          (o): Cell => ({ text: String(o), small: r.open ? "open" : "visible", kind: r.open ? "pending" : "stored" }),
        ),
      );
      return {
        title: `Lane ${i}`,
        state: lane.position === null ? "no position" : `position ${lane.position}${lane.by && `, by ${lane.by}`}`,
        rows: [
          ...pending.map((empty) => ({ cells: [], empty })),
          { cells: [], empty: lane.recorded ? "recorded in the lanes topic" : "not recorded in the lanes topic" },
          { label: "rows in the sink", cells, empty: "none" },
        ],
      };
    }),
    ...(v.late.length
      ? [{ title: "Still in the network", kind: "network", rows: v.late.map((empty) => ({ cells: [], empty })) }]
      : []),
  ];
}

const memberOf = (member: number) => (member ? `its member is ${member}` : "it is empty");
const range = (from: number, until: number) => Array.from({ length: until - from }, (_, i) => from + i);
