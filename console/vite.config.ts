import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

/** The hash of everything that the page is built from; tests/unit/console/test_page.py compares it without Node. */
function sourcesHash(): string {
  const inDirectory = readdirSync("src", { recursive: true })
    .map((name) => join("src", String(name)))
    .filter((name) => statSync(name).isFile());
  const hash = createHash("sha256");
  for (const name of [...inDirectory, "index.html", "package-lock.json", "tsconfig.json", "vite.config.ts"].sort()) {
    hash.update(`${name}\n`).update(readFileSync(name));
  }
  return hash.digest("hex").slice(0, 16);
}

// One file, which the Python package contains.
export default defineConfig({
  plugins: [
    {
      name: "sources",
      transformIndexHtml: () => [{ tag: "meta", attrs: { name: "sources", content: sourcesHash() } }],
    },
    viteSingleFile(),
  ],
  build: { outDir: "../build/console", emptyOutDir: true, modulePreload: false },
});
