// The page in a real browser, served by the real command from a recorded state: axe in light and dark, 320 px, keyboard.
// ACKWRIGHT names the command (default: of the checkout's environment), CHROMIUM the browser (default: Debian's), and
// SCREENSHOTS a directory for a picture of each view.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const COMMAND = process.env.ACKWRIGHT ?? fileURLToPath(new URL("../../.venv/bin/ackwright", import.meta.url));
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const OPTIONS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const DETAIL = "#/pipeline/finance/ledger";
const VIEWS = { list: "#/", detail: DETAIL, delivering: "#/pipeline/ops/delayed-flights", plan: "#/plan/ops/delayed-flights" };
const MANY = 1000; // pipelines
const ROWS = 80; // of the list in the document, at most

const PYTHON = join(dirname(COMMAND), "python");
const ENVIRONMENT = {
  ...process.env,
  PYTHONPATH: ["operator", "spark_app", "tests"].map((name) => join(ROOT, name)).concat(process.env.PYTHONPATH ?? []).join(delimiter),
};
const directory = mkdtempSync(join(tmpdir(), "ackwright-console-"));
const RECORDED = join(directory, "state.json");
const children = [];
let browser;
let recorded;
let large;

/** Starts `ackwright console`. Returns the page's address, and a function that ends the command. */
async function serve(state) {
  const process_ = spawn(COMMAND, ["console", "--state", state], { stdio: ["ignore", "pipe", "inherit"] });
  children.push(process_);
  const ended = new Promise((resolve) => process_.on("exit", resolve));
  const lines = createInterface({ input: process_.stdout })[Symbol.asyncIterator]();
  const { value } = await lines.next();
  assert.match(value ?? "", /^http:\/\/127\.0\.0\.1:\d+\//);
  return { url: value, stop: () => (process_.kill("SIGINT"), ended) };
}

/** Starts the activity of a demo (tests/unit/console/live.py). kill: adds a kill; report: a driver's; stop: ends it. */
async function demo() {
  const process_ = spawn(PYTHON, ["-m", "unit.console.live"], { stdio: ["pipe", "pipe", "inherit"], env: ENVIRONMENT });
  children.push(process_);
  const ended = new Promise((resolve) => process_.on("exit", resolve));
  const { value } = await createInterface({ input: process_.stdout })[Symbol.asyncIterator]().next();
  return {
    url: value,
    kill: (text) => process_.stdin.write(`${text}\n`),
    report: (driver) => process_.stdin.write(`${driver}\n`),
    stop: () => (process_.stdin.end(), ended),
  };
}

/** A state with so many pipelines: copies of the recorded ones. */
function withPipelines(count) {
  const state = JSON.parse(readFileSync(RECORDED, "utf8"));
  const resources = Array.from({ length: count }, (_, i) => {
    const original = state.resources[i % state.resources.length];
    const name = `${original.metadata.name}-${String(i).padStart(4, "0")}`;
    return { ...original, metadata: { ...original.metadata, name } };
  });
  const file = join(directory, `${count}.json`);
  writeFileSync(file, JSON.stringify({ ...state, resources, details: {} }));
  return file;
}

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: OPTIONS,
    timeout: 180_000,
  });
  execFileSync(PYTHON, ["-m", "unit.console.recorded", RECORDED], { env: ENVIRONMENT });
  execFileSync(PYTHON, ["-m", "unit.console.example"], { env: ENVIRONMENT });
  recorded = await serve(RECORDED);
  large = await serve(withPipelines(MANY));
});
after(async () => {
  await browser?.close();
  for (const child of children) child.kill();
  rmSync(directory, { recursive: true });
});

/** Opens a view; problems gets every error, and every request to anything but the command. */
async function open(view, { server = recorded, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const problems = [];
  page.on("request", (r) => {
    if (!r.url().startsWith(server.url) && !r.url().startsWith("data:")) problems.push(`request: ${r.url()}`);
  });
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
  await page.goto(server.url + view);
  return { context, page, problems };
}

/** Waits until the view has its content. */
async function ready(page, view) {
  if (view === "plan") {
    await page.waitForFunction(() => document.querySelector("textarea")?.value.includes("kind:"));
    await page.getByRole("button", { name: "Plan" }).click();
  }
  const last = { list: "table", detail: "#audits", delivering: "#audits", plan: ".chain" }[view];
  await page.locator(last === "table" ? "[role=table]" : last).waitFor();
}

/** Fails on a violation that axe reports, and on a page that is wider than its window. */
async function check(context, page, width) {
  // The page's policy allows only its own scripts, so axe is injected past it.
  const session = await context.newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(" ")}`), []);
  const content = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(content <= width, `the page is ${content} px wide`);
}

async function screenshot(page, view) {
  if (!process.env.SCREENSHOTS) return;
  await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-${view}.png`, fullPage: view !== "list" });
}

for (const colorScheme of ["light", "dark"]) {
  for (const [view, hash] of Object.entries(VIEWS)) {
    for (const width of [320, 1280]) {
      test(`${view}: axe, and no overflow at ${width} px (${colorScheme})`, async () => {
        const { context, page, problems } = await open(hash, { colorScheme, viewport: { width, height: 900 } });
        await ready(page, view);
        await check(context, page, width);
        assert.deepEqual(problems, []);
        if (width === 1280 && colorScheme === "light") await screenshot(page, view);
        await context.close();
      });
    }
  }
}

test("1,000 pipelines: only the visible rows are in the document", async () => {
  const { context, page, problems } = await open("#/", { server: large });
  await page.locator("[data-row]").first().waitFor();
  assert.ok((await page.locator("[data-row]").count()) < ROWS);
  assert.equal(await page.locator("[role=table]").getAttribute("aria-rowcount"), String(MANY + 1));
  assert.deepEqual(problems, []);
  await context.close();
});

/** Milliseconds from the request for the page to its first content, and to the first row of the list. */
async function paints() {
  const { context, page } = await open("#/", { server: large });
  const times = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const check = () => {
          // The browser may report a paint after the row is in the document.
          const first = performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
          if (first && document.querySelector("[data-row]")) resolve([first, performance.now()].map(Math.round));
          else requestAnimationFrame(check);
        };
        check();
      }),
  );
  await context.close();
  return times;
}

test("1,000 pipelines: every row appears where it is scrolled to, and the document stays small", async () => {
  const { context, page, problems } = await open("#/", { server: large });
  await page.locator("[data-row]").first().waitFor();
  const steps = await page.evaluate(async () => {
    const box = document.querySelector(".scroll");
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const durations = [];
    const empty = [];
    let rows = 0;
    for (let top = 0; top < box.scrollHeight - box.clientHeight; top += 600) {
      const started = await frame();
      box.scrollTop = top;
      await frame();
      durations.push((await frame()) - started);
      rows = Math.max(rows, document.querySelectorAll("[data-row]").length);
      const { left, top: y, height } = box.getBoundingClientRect();
      if (!document.elementFromPoint(left + 20, y + height / 2)?.closest("[data-row]")) empty.push(top);
    }
    return { durations: durations.sort((a, b) => a - b), empty, rows };
  });
  assert.deepEqual(steps.empty, []);
  assert.ok(steps.rows < ROWS, `${steps.rows} rows are in the document`);
  assert.deepEqual(problems, []);
  await context.close();
  // Times are printed and not asserted: they depend on what else the machine does.
  const at = (share) => Math.round(steps.durations[Math.floor(share * (steps.durations.length - 1))]);
  console.log(`two frames after a scroll: median ${at(0.5)} ms, 95 % ${at(0.95)} ms, longest ${at(1)} ms`);
  const rounds = [await paints(), await paints(), await paints()];
  const [first, row] = [0, 1].map((i) => Math.min(...rounds.map((round) => round[i])));
  console.log(`fastest of three: first content after ${first} ms, first row after ${row} ms`);
});

test("by keyboard: filter, move by rows to the last one, open it, and the title has the focus", async () => {
  const { context, page, problems } = await open("#/", { server: large });
  await page.locator("[data-row]").first().waitFor();
  await page.getByRole("searchbox").focus();
  await page.keyboard.type("finance ledger");
  await page.waitForFunction(() => document.querySelector("main [role=status]").textContent === "100 of 1,000 pipelines");
  await page.locator(".scroll").focus();
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "ledger-0001");
  await page.keyboard.press("End");
  await page.waitForFunction(() => document.activeElement.textContent === "ledger-0991");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.tagName === "H1" && document.title.startsWith("ledger-0991"));
  await page.goBack();
  await page.locator("[data-row]").first().waitFor();
  assert.equal(await page.getByRole("searchbox").inputValue(), "finance ledger");
  assert.deepEqual(problems, []);
  await context.close();
});

test("the list sorts, and filters by state, guarantee and namespace", async () => {
  const { context, page, problems } = await open("#/");
  const names = () => page.locator("[data-row] a").allTextContents();
  await page.locator("[data-row]").first().waitFor();
  assert.deepEqual((await names()).slice(0, 4), ["invoices", "ledger", "returns", "stock"]);
  await page.getByRole("button", { name: "Pipeline" }).click();
  assert.equal((await names())[0], "fraud-signals");
  await page.getByRole("button", { name: "Pipeline" }).click();
  assert.equal((await names())[0], "access-log");
  const [state, guarantee, namespace] = await page.getByRole("search").getByRole("combobox").all();
  await namespace.selectOption("finance");
  await state.selectOption("attention");
  assert.deepEqual(await names(), ["ledger", "invoices"]);
  await guarantee.selectOption("at-most-once");
  await page.getByText("No pipeline matches.").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a pipeline shows its weakest link, remedies, lanes, topics and audits", async () => {
  const { context, page, problems } = await open(DETAIL);
  await ready(page, "detail");
  const text = await page.locator("main").innerText();
  assert.match(text, /GuaranteeMet False NotEnoughReplicas/);
  assert.match(text, /What to do: restart the missing broker/);
  assert.match(text, /payments-5\s+1,203,963\s+1,204,733\s+770/);
  assert.match(text, /1 of 3, writes are refused/);
  assert.equal(await page.locator(".weakest").count(), 1);
  await page.goto(`${recorded.url}#/pipeline/ops/delayed-flights`);
  await page.getByText("held", { exact: true }).waitFor();
  assert.match(await page.locator("main").innerText(), /1,310,882/);
  await page.goto(`${recorded.url}#/pipeline/ops/none`);
  await page.getByRole("alert").getByText("NotFound").waitFor();
  assert.deepEqual(problems.filter((p) => !p.includes("404")), []);
  await context.close();
});

test("an edit is planned before it is applied", async () => {
  const { context, page, problems } = await open(VIEWS.plan);
  await ready(page, "plan");
  const status = page.locator("main > [role=status]");
  assert.equal(await status.textContent(), "Nothing changes.");
  const editor = page.getByLabel("Pipeline as YAML");
  const text = await editor.inputValue();
  const plan = async (changed) => {
    await editor.fill(changed);
    await editor.press("Control+Enter");
  };
  await plan(text.replace(" WHERE value IS NOT NULL", ""));
  await status.getByText("restart:").waitFor();
  await plan(text.replace("SELECT key", "SELEC key"));
  await status.getByText("1 error").waitFor();
  assert.match(await page.getByRole("region", { name: "Errors" }).innerText(), /line \d+, column \d+: spec\.transform\.sql/);
  await plan("");
  await page.getByText("is empty").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [320, 1280]) {
    test(`live: axe, and no overflow at ${width} px (${colorScheme})`, async () => {
      const server = await demo();
      const { context, page, problems } = await open("#/", { server, colorScheme, viewport: { width, height: 900 } });
      await page.getByRole("heading", { name: "at-least-once" }).waitFor();
      await check(context, page, width);
      assert.deepEqual(problems, []);
      if (width === 1280 && colorScheme === "light") await screenshot(page, "live");
      await context.close();
      await server.stop();
    });
  }
}

test("a kill appears while the page is open, and the pipeline has its chain", async () => {
  const server = await demo();
  const { context, page, problems } = await open("#/", { server });
  await page.getByRole("heading", { name: "at-least-once" }).waitFor();
  assert.match(await page.locator("main").innerText(), /30,000 of 60,000 records/);
  server.kill("killed broker 2 (after 60% of the records)");
  await page.getByRole("log").getByText("killed broker 2").waitFor();
  await page.getByRole("link", { name: "at-least-once" }).click();
  await page.locator(".chain .weakest").waitFor();
  await page.getByRole("navigation").getByRole("link", { name: "Live" }).click();
  await page.getByRole("log").getByText("killed broker 2").waitFor();
  assert.deepEqual(problems, []);
  await server.stop();
  await page.getByRole("alert").getByText("The console does not answer").waitFor();
  assert.match(await page.locator("main").innerText(), /killed broker 2/);
  await context.close();
});

test("a takeover appears while a pipeline is open", async () => {
  const server = await demo();
  server.report(1);
  const { context, page, problems } = await open("#/pipeline/demo/disrupted-at-least-once", { server });
  await page.getByText("running, number 1").waitFor();
  server.report(2);
  await page.getByText("Driver 2 has taken the pipeline from driver 1.").waitFor();
  assert.match(await page.locator("main").innerText(), /takeover or restart/);
  assert.deepEqual(problems, []);
  await context.close();
  await server.stop();
});

test("the delivery simulator opens, and its scripts are allowed", async () => {
  const { context, page, problems } = await open("#/");
  await page.getByRole("navigation").getByRole("link", { name: "Simulator" }).click();
  await page.getByRole("button", { name: "Send a record" }).click();
  assert.match(await page.getByRole("status").first().textContent(), /sends record 1/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("the page of the documentation shows a recorded state from a file, without a request", async () => {
  const server = { url: new URL("../../build/console-example.html", import.meta.url).href };
  const { context, page, problems } = await open("#/", { server });
  await page.getByRole("link", { name: "ledger" }).click();
  await page.locator(".chain .weakest").waitFor();
  await check(context, page, 1280);
  assert.equal(await page.getByRole("link", { name: "Plan" }).count(), 0);
  assert.deepEqual(problems, []);
  await context.close();
});

test("the page reports that the command has ended", async () => {
  const server = await serve(RECORDED);
  const { context, page } = await open("#/", { server });
  await page.locator("[data-row]").first().waitFor();
  assert.equal(await server.stop(), 0);
  await page.getByRole("alert").getByText("The console does not answer").waitFor();
  assert.ok((await page.locator("[data-row]").count()) > 0);
  await context.close();
});
