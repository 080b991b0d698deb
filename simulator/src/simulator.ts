// The two modes as tabs, for this page and for others that embed the simulator.

import { deliveryView } from "./delivery/view";
import { h } from "./dom";
import { protocolView } from "./protocol/view";

const MODES = [
  { id: "delivery", label: "Kafka: producer, brokers, consumer", view: deliveryView },
  { id: "protocol", label: "Ackwright's protocol", view: protocolView },
];

/** Puts the simulator into an element. hash: the fragment of the page's address names the mode. */
export function mount(parent: Element, { hash = false } = {}): void {
  const panels = MODES.map((m) =>
    h("div", { role: "tabpanel", id: `panel-${m.id}`, "aria-labelledby": `tab-${m.id}` }, m.view()),
  );
  const tabs = MODES.map((m, i) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${m.id}`,
        "aria-controls": `panel-${m.id}`,
        onclick: () => select(i),
        onkeydown: (e: Event) => move(e as KeyboardEvent, i),
      },
      m.label,
    ),
  );

  function select(index: number): void {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      panels[i]!.hidden = i !== index;
    });
    if (hash) history.replaceState(null, "", `#${MODES[index]!.id}`);
  }

  function move(e: KeyboardEvent, index: number): void {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by) return;
    const next = (index + by + tabs.length) % tabs.length;
    select(next);
    tabs[next]!.focus();
  }

  parent.replaceChildren(h("div", { role: "tablist", "aria-label": "Modes" }, ...tabs), ...panels);
  select(Math.max(0, hash ? MODES.findIndex((m) => `#${m.id}` === location.hash) : 0));
}
