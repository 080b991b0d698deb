// The parts of a drawing: cards below each other, each with a title, lines of text and rows of cells that wrap.

import { s } from "./dom";

export interface Cell {
  readonly text: string;
  readonly small?: string; // below the text
  readonly kind?: string; // a class of style.css
}

export interface Card {
  readonly title: string;
  readonly state?: string; // on the right of the title
  readonly kind?: string;
  readonly rows: readonly { readonly label?: string; readonly cells: readonly Cell[]; readonly empty?: string }[];
}

const PADDING = 10;
const GAP = 6;
const CELL = 38;
const LINE = 18;

/** An SVG of the cards, as wide as `width` pixels. It is decoration: the page has the same as text. */
export function cards(width: number, list: readonly Card[]): SVGElement {
  const parts: SVGElement[] = [];
  let y = 0;
  for (const card of list) {
    const { element, height } = drawCard(width, y, card);
    parts.push(element);
    y += height + GAP;
  }
  return s("svg", { viewBox: `0 0 ${width} ${y}`, width, height: y, "aria-hidden": "true" }, ...parts);
}

function drawCard(width: number, top: number, card: Card): { element: SVGElement; height: number } {
  const parts: SVGElement[] = [];
  const stateBelow = Boolean(card.state) && (card.title.length + card.state!.length) * 7.2 > width - 3 * PADDING;
  let y = PADDING + 12;
  parts.push(text(PADDING, y, card.title, "title"));
  if (card.state) {
    if (stateBelow) y += LINE;
    parts.push(text(stateBelow ? PADDING : width - PADDING, y, card.state, stateBelow ? "state" : "state end"));
  }
  y += 8;
  for (const row of card.rows) {
    if (row.label) {
      y += LINE - 4;
      parts.push(text(PADDING, y, row.label, "label"));
      y += 6;
    }
    const perLine = Math.max(1, Math.floor((width - 2 * PADDING + 4) / (CELL + 4)));
    row.cells.forEach((cell, i) => {
      const x = PADDING + (i % perLine) * (CELL + 4);
      parts.push(drawCell(x, y + Math.floor(i / perLine) * (CELL + 4), cell));
    });
    if (row.cells.length) y += Math.ceil(row.cells.length / perLine) * (CELL + 4);
    else if (row.empty) {
      y += LINE - 4;
      parts.push(text(PADDING, y, row.empty, "label"));
      y += 4;
    }
  }
  const height = y + PADDING - 4;
  const frame = s("rect", { x: 0.5, y: 0.5, width: width - 1, height: height - 1, rx: 6 });
  const element = s("g", { class: `card ${card.kind ?? ""}`, transform: `translate(0 ${top})` }, frame, ...parts);
  return { element, height };
}

function drawCell(x: number, y: number, cell: Cell): SVGElement {
  return s(
    "g",
    { class: `cell ${cell.kind ?? ""}`, transform: `translate(${x} ${y})` },
    s("rect", { width: CELL, height: CELL, rx: 4 }),
    text(CELL / 2, cell.small ? 17 : 24, cell.text, "value"),
    ...(cell.small ? [text(CELL / 2, 31, cell.small, "small")] : []),
  );
}

function text(x: number, y: number, content: string, kind: string): SVGElement {
  return s("text", { x, y, class: kind }, content);
}

/** The same cards as text, for screen readers and for readers that prefer it. */
export function asText(list: readonly Card[]): string[] {
  return list.map((card) => {
    const rows = card.rows.map((row) => {
      const cells = row.cells.map((c) => (c.small ? `${c.text} (${c.small})` : c.text)).join(", ");
      return [row.label, cells || row.empty].filter(Boolean).join(": ");
    });
    return `${[card.title, card.state].filter(Boolean).join(", ")}. ${rows.filter(Boolean).join(". ")}`;
  });
}
