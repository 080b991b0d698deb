// Elements without a framework: attributes by name, event listeners by on-names.

type Child = Node | string | null | false;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | null>;

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((c): c is Node | string => c !== null && c !== false));
  return element;
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** A button that stays focusable while its action is not possible. */
export function button(label: string, isPossible: boolean, act: () => void, attributes: Attributes = {}): HTMLElement {
  return h(
    "button",
    { type: "button", "aria-disabled": String(!isPossible), ...attributes, onclick: () => isPossible && act() },
    label,
  );
}

/** Replaces the children of an element; the focus stays on the element with the same data-key. */
export function replace(parent: Element, ...children: Child[]): void {
  const key = parent.contains(document.activeElement) && document.activeElement?.getAttribute("data-key");
  parent.replaceChildren(...children.filter((c): c is Node | string => c !== null && c !== false));
  if (key) parent.querySelector<HTMLElement>(`[data-key="${key}"]`)?.focus();
}

/** Draws into the element, and again whenever its width changes. draw: gets the width in pixels. */
export function drawing(draw: (width: number) => SVGElement): { element: HTMLElement; update: () => void } {
  const element = h("div", { class: "drawing" });
  const update = () => element.replaceChildren(draw(Math.max(260, Math.floor(element.clientWidth) || 640)));
  new ResizeObserver(update).observe(element);
  return { element, update };
}
