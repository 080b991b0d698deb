// The second mode: the model of Ackwright's protocol, and what happens without one of its rules.

import { asText, cards } from "../cards";
import { button, drawing, h, replace } from "../dom";
import { RULES, STORIES, type Succession, type View } from "./data";
import { cardsOf } from "./drawing";

export function protocolView(): HTMLElement {
  let off = 0; // the number of the rule that is off
  let story = 0; // index in titles()
  let at = 0; // steps played

  const switches = h("fieldset", { class: "rules" });
  const stories = h("div", { class: "row" });
  const announcement = h("p", { class: "sentence", role: "status" });
  const player = h("div", { class: "row" });
  const steps = h("ol", { class: "steps" });
  const text = h("ul");
  const picture = drawing((width) => cards(width, cardsOf(view())));

  const withRule = RULES.filter((r) => r.with);
  const rule = () => RULES.find((r) => r.number === off);

  function succession(): Succession {
    if (off) return rule()!.without!;
    return STORIES[story] ?? withRule[story - STORIES.length]!.with!;
  }

  function titles(): string[] {
    return [
      ...STORIES.map((x) => x.title),
      ...withRule.map((r) => `With rule ${r.number}: the steps of its counterexample`),
    ];
  }

  /** The view after the steps that are played; a step that is a violation itself has none. */
  function view(): View {
    const { first, steps: all } = succession();
    return all.slice(0, at).findLast((x) => x.view)?.view ?? first;
  }

  function go(to: number): void {
    at = Math.min(Math.max(0, to), succession().steps.length);
    render();
  }

  function render(): void {
    const { steps: all, violation } = succession();
    const isViolated = violation !== null && at === all.length;
    replace(
      switches,
      h("legend", {}, "Rules"),
      ...RULES.map((r) =>
        h(
          "label",
          { class: r.without ? "switch" : "switch absent" },
          h("input", {
            type: "checkbox",
            role: "switch",
            checked: off !== r.number,
            disabled: !r.without,
            "data-key": `rule-${r.number}`,
            onchange: (e: Event) => turn(r.number, (e.target as HTMLInputElement).checked),
          }),
          h("span", {}, `${r.number}. ${r.rule}`, r.without ? "" : ` ${r.off}`),
        ),
      ),
    );
    replace(
      stories,
      off
        ? h("p", {}, h("strong", {}, `Without rule ${off}. `), rule()!.off)
        : h(
            "label",
            {},
            h("span", {}, "All rules are on. Succession"),
            h(
              "select",
              { "data-key": "story", onchange: (e: Event) => choose(Number((e.target as HTMLSelectElement).value)) },
              ...titles().map((title, i) => h("option", { value: i, selected: i === story }, title)),
            ),
          ),
    );
    const played = all[at - 1];
    announcement.textContent =
      (played ? `${played.label}. ${played.why}` : "The initial state.") +
      (isViolated ? ` The invariant is violated: ${violation}.` : at === all.length ? " No invariant is violated." : "");
    announcement.classList.toggle("refused", isViolated);
    replace(
      player,
      button("Next step", at < all.length, () => go(at + 1), { "data-key": "next", class: "primary" }),
      button("One step back", at > 0, () => go(at - 1), { "data-key": "back" }),
      button("To the end", at < all.length, () => go(all.length), { "data-key": "end" }),
      button("To the beginning", at > 0, () => go(0), { "data-key": "start" }),
      h("span", { class: "progress" }, `step ${at} of ${all.length}`),
    );
    replace(
      steps,
      ...all.map((x, i) =>
        h(
          "li",
          i < at ? { class: "played" } : {},
          button(x.label, true, () => go(i + 1), {
            "data-key": `step-${i}`,
            class: "link",
            ...(i === at - 1 && { "aria-current": "step" }),
          }),
        ),
      ),
    );
    text.replaceChildren(...asText(cardsOf(view())).map((line) => h("li", {}, line)));
    picture.update();
  }

  function turn(number: number, on: boolean): void {
    if (on) story = STORIES.length + withRule.findIndex((r) => r.number === number);
    off = on ? 0 : number;
    go(0);
  }

  function choose(index: number): void {
    story = index;
    go(0);
  }

  render();
  return h(
    "div",
    { class: "mode" },
    h(
      "section",
      { "aria-label": "Rules" },
      h("p", {}, "Turn a rule off: the shortest succession plays that violates an invariant. With all rules on there is none: the search of the model is complete."),
      switches,
    ),
    h("section", { class: "stage", "aria-label": "What happens" }, stories, player, announcement, picture.element),
    h("section", {}, h("h2", {}, "Steps"), steps),
    h("details", {}, h("summary", {}, "The drawing as text"), text),
  );
}
