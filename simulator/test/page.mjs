// The built page in a real browser: from a file, without a network, by keyboard, with axe, in light and dark, at 320 px.
// CHROMIUM names the browser (default: Debian's). SCREENSHOTS names a directory for a picture of each mode.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const PAGE = new URL("../../docs/delivery-simulator.html", import.meta.url);
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const MODES = ["delivery", "protocol"];
const OPTIONS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
let browser;

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: OPTIONS,
    timeout: 180_000,
  });
});
after(() => browser.close());

/** Opens a mode of the page, and fails on any request but the one for the file, and on any error. */
async function open(mode, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  const problems = [];
  page.on("request", (r) => {
    if (!/^(file|data):/.test(r.url())) problems.push(`request: ${r.url()}`);
  });
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
  await page.goto(`${PAGE.href}#${mode}`);
  return { context, page, problems, panel: page.locator(`#panel-${mode}`) };
}

const status = (panel) => panel.getByRole("status").textContent();
const count = async (panel, name) =>
  (await panel.locator(".counter div", { has: panel.page().locator(`dt:text-is("${name}")`) }).locator("dd").textContent()) ??
  "";

for (const colorScheme of ["light", "dark"]) {
  for (const mode of MODES) {
    test(`${mode}: axe, and no overflow at 320 px (${colorScheme})`, async () => {
      const { context, page, problems, panel } = await open(mode, { colorScheme, viewport: { width: 320, height: 900 } });
      if (mode === "delivery") await panel.getByLabel("Scenario").selectOption("acknowledgement-lost");
      else await panel.getByRole("switch", { name: /^1\./ }).uncheck();
      await panel.getByRole("button", { name: "To the end" }).click();
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(" ")}`), []);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= 320, `the page is ${width} px wide`);
      assert.deepEqual(problems, []);
      await context.close();
    });
  }
}

test("a record is lost by keyboard alone, and each step is announced", async () => {
  const { context, page, problems, panel } = await open("delivery");
  await panel.locator("select[name=acks]").focus();
  await page.keyboard.press("0");
  assert.match(await status(panel), /Kafka refuses these settings/);
  await panel.getByLabel("enable.idempotence").selectOption("false");
  assert.match(await status(panel), /Nothing is sent yet/);
  const press = async (name) => {
    await panel.getByRole("button", { name, exact: true }).focus();
    await page.keyboard.press("Enter");
  };
  await press("Send a record");
  assert.match(await status(panel), /sends record 1 and forgets it/);
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Send a record");
  await press("Lose the request");
  assert.match(await status(panel), /nobody notices/);
  assert.equal(await count(panel, "lost"), "1");
  await press("One step back");
  assert.equal(await count(panel, "lost"), "0");
  await press("Deliver the acknowledgement"); // not possible: nothing happens
  assert.equal(await count(panel, "sent"), "1");
  assert.deepEqual(problems, []);
  await context.close();
});

test("every scenario plays to its end", async () => {
  const { context, problems, panel } = await open("delivery");
  const scenarios = JSON.parse(readFileSync(new URL("../src/scenarios.json", import.meta.url), "utf8"));
  assert.ok(scenarios.length >= 8);
  for (const { name, end } of scenarios) {
    await panel.getByLabel("Scenario").selectOption(name);
    await panel.getByRole("button", { name: "To the end" }).click();
    assert.equal(Number.parseInt(await count(panel, "lost"), 10), end.lost, name);
    assert.equal(Number(await count(panel, "duplicated")), end.duplicated, name);
    assert.equal(Number(await count(panel, "out of order")), end.out_of_order, name);
  }
  if (process.env.SCREENSHOTS) {
    await panel.getByLabel("Scenario").selectOption("acks-1-leader-dies-before-replication");
    for (let i = 0; i < 6; i += 1) await panel.getByRole("button", { name: "Next step" }).click();
    await panel.page().screenshot({ path: `${process.env.SCREENSHOTS}/simulator-delivery.png` });
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("a rule that is off plays its counterexample, and its steps end well with the rule on", async () => {
  const { context, page, problems, panel } = await open("protocol");
  const protocol = JSON.parse(readFileSync(new URL("../src/protocol.json", import.meta.url), "utf8"));
  const rules = protocol.rules.filter((r) => r.without);
  assert.ok(rules.length > 8);
  for (const { number, without } of rules) {
    const rule = panel.getByRole("switch", { name: new RegExp(`^${number}\\.`) });
    await rule.uncheck();
    await panel.getByRole("button", { name: "To the end" }).click();
    assert.ok((await status(panel)).includes(without.violation), `rule ${number}`);
    if (number === 1 && process.env.SCREENSHOTS) {
      await page.screenshot({ path: `${process.env.SCREENSHOTS}/simulator-protocol.png` });
    }
    await panel.getByRole("switch", { name: new RegExp(`^${number}\\.`) }).check();
    await panel.getByRole("button", { name: "To the end" }).click();
    assert.match(await status(panel), /No invariant is violated/);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("the arrow keys change the mode", async () => {
  const { context, page, panel } = await open("delivery");
  await page.getByRole("tab", { name: /Kafka/ }).focus();
  await page.keyboard.press("ArrowRight");
  assert.ok(await page.locator("#panel-protocol").isVisible());
  assert.ok(!(await panel.isVisible()));
  await context.close();
});
