import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file that works without a server and without a network.
export default defineConfig({
  plugins: [viteSingleFile()],
  build: { outDir: "../build/simulator", emptyOutDir: true, modulePreload: false },
  test: { include: ["test/*.test.ts"], testTimeout: 120_000 },
} as Parameters<typeof defineConfig>[0]);
