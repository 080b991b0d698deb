// A table that scrolls by itself where it is wider than the page.

import type { ComponentChildren } from "preact";

interface Props {
  readonly label: string;
  readonly columns: readonly string[];
  readonly numeric?: readonly number[];
  readonly rows: readonly (readonly ComponentChildren[])[];
  readonly empty?: string;
}

export function Table({ label, columns, numeric = [], rows, empty = "none" }: Props) {
  if (rows.length === 0) return <p class="muted">{empty}</p>;
  return (
    <div class="wide" role="group" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((c, i) =>
              c ? (
                <th key={c} scope="col" class={numeric.includes(i) ? "numeric" : ""}>
                  {c}
                </th>
              ) : (
                <td key="none" />
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, r) => (
            <tr key={r}>
              {cells.map((cell, i) => (
                <td key={i} class={numeric.includes(i) ? "numeric" : ""}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
