// The first mode: a producer, brokers and a consumer, with failures at every step.

import { asText, cards } from "../cards";
import { button, drawing, h, replace } from "../dom";
import { counts } from "../model/counts";
import { initial, refusal, type Settings, type State } from "../model/state";
import { actions, step } from "../model/step";
import scenarios from "../scenarios.json";
import { sentence } from "../sentences";
import { cardsOf } from "./drawing";
import { FIELDS, groups, labelOf, parse } from "./labels";

interface Moment {
  readonly state: State;
  readonly label: string;
  readonly why: string;
}

const DEFAULTS: Settings = {
  acks: "all",
  retries: true,
  idempotence: true,
  transactions: false,
  replicas: 3,
  min_insync: 2,
  unclean: false,
  commit: "after",
};

export function deliveryView(): HTMLElement {
  let settings = DEFAULTS;
  let history: Moment[] = [];
  let script: string[] = []; // the actions of the scenario that are left
  let scenario = "";

  const form = h("form", { class: "settings" });
  const scenarioBox = h("div", { class: "row" });
  const announcement = h("p", { class: "sentence", role: "status" });
  const counter = h("dl", { class: "counter" });
  const buttons = h("div", { class: "actions" });
  const steps = h("ol", { class: "steps" });
  const text = h("ul");
  const picture = drawing((width) => cards(width, cardsOf(settings, current())));

  const current = () => history.at(-1)!.state;

  function restart(next: Settings, name = ""): void {
    settings = next;
    scenario = name;
    script = [...(scenarios.find((x) => x.name === name)?.actions ?? [])];
    history = [{ state: initial(settings), label: "Start", why: "Nothing is sent yet." }];
    render();
  }

  function act(action: string): void {
    if (script[0] === action) script.shift();
    else script = [];
    const { state, reason, number } = step(settings, current(), action);
    history = [...history, { state, label: labelOf(settings, action), why: sentence(reason, number) }];
    render();
  }

  function back(): void {
    history = history.slice(0, -1);
    script = [];
    render();
  }

  function render(): void {
    const refused = refusal(settings);
    const possible = refused ? [] : actions(settings, current());
    renderForm();
    renderScenario();
    announcement.textContent = refused ? sentence(refused) : history.at(-1)!.why;
    announcement.classList.toggle("refused", refused !== null);
    renderCounter();
    replace(
      buttons,
      ...groups(settings).map((g) =>
        h(
          "fieldset",
          {},
          h("legend", {}, g.name),
          ...g.actions.map(([action, label]) =>
            button(label, possible.includes(action), () => act(action), { "data-key": action }),
          ),
        ),
      ),
    );
    steps.replaceChildren(...history.slice(1).map((m) => h("li", {}, h("strong", {}, m.label), " ", m.why)));
    text.replaceChildren(...asText(cardsOf(settings, current())).map((line) => h("li", {}, line)));
    picture.update();
  }

  function renderForm(): void {
    const fields = FIELDS.map((f) => {
      const options = f.options.map(([value, label]) =>
        h("option", { value, selected: String(settings[f.name]) === value }, label),
      );
      const select = h("select", { name: f.name, "data-key": f.name, onchange: changed }, ...options);
      return h("label", {}, h("span", {}, f.label), select);
    });
    replace(form, ...fields);
  }

  function changed(): void {
    restart(parse(Object.fromEntries(new FormData(form)) as Record<string, string>));
  }

  function renderScenario(): void {
    const options = scenarios.map((x) => h("option", { value: x.name, selected: x.name === scenario }, x.title));
    const select = h(
      "select",
      { "data-key": "scenario", onchange: (e: Event) => choose((e.target as HTMLSelectElement).value) },
      h("option", { value: "" }, "none: choose the settings and the failures"),
      ...options,
    );
    replace(
      scenarioBox,
      h("label", {}, h("span", {}, "Scenario"), select),
      button("Next step", script.length > 0, () => act(script[0]!), { "data-key": "next", class: "primary" }),
      button("To the end", script.length > 0, toEnd, { "data-key": "end" }),
      button("One step back", history.length > 1, back, { "data-key": "back" }),
      button("Start again", history.length > 1, () => restart(settings, scenario), { "data-key": "again" }),
    );
  }

  function choose(name: string): void {
    restart((scenarios.find((x) => x.name === name)?.settings as Settings | undefined) ?? settings, name);
  }

  function toEnd(): void {
    while (script.length) act(script[0]!);
  }

  function renderCounter(): void {
    const c = counts(settings, current());
    const entries: [string, string, string][] = [
      ["sent", String(c.sent), ""],
      ["delivered", String(c.delivered), ""],
      ["pending", String(c.pending), ""],
      ["lost", c.reported ? `${c.lost} (${c.reported} with an error)` : String(c.lost), c.lost ? "bad" : ""],
      ["duplicated", String(c.duplicated), c.duplicated ? "bad" : ""],
      ["out of order", String(c.out_of_order), c.out_of_order ? "bad" : ""],
    ];
    counter.replaceChildren(
      ...entries.map(([name, value, kind]) => h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value))),
    );
  }

  restart(settings);
  return h(
    "div",
    { class: "mode" },
    h("section", { "aria-label": "Settings" }, scenarioBox, form),
    h("section", { class: "stage", "aria-label": "What happens" }, announcement, counter, picture.element),
    h("section", { "aria-label": "Actions" }, buttons),
    h("section", {}, h("h2", {}, "Steps"), steps),
    h("details", {}, h("summary", {}, "The drawing as text"), text),
  );
}
