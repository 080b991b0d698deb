// A state in words with a sign: colour alone says nothing to many readers.

import type { Health } from "./api";

const TEXTS: Record<Health, readonly [string, string]> = {
  ready: ["✓", "Ready"],
  waiting: ["…", "Not ready yet"],
  attention: ["!", "Needs attention"],
  suspended: ["‖", "Suspended"],
};

export function Badge({ health }: { health: Health }) {
  const [sign, text] = TEXTS[health];
  return (
    <span class={`badge ${health}`}>
      <span aria-hidden="true">{sign}</span> {text}
    </span>
  );
}
