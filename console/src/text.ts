// Numbers and times as people read them.

const NUMBERS = new Intl.NumberFormat("en");
const ROUNDED = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const number = (value: number | null | undefined): string => (value == null ? "–" : NUMBERS.format(value));
/** Records per second; decimals only of small rates. */
export const rate = (value: number | null | undefined): string =>
  value == null ? "–" : `${value < 100 ? ROUNDED.format(value) : NUMBERS.format(Math.round(value))}/s`;

export function counted(value: number, noun: string): string {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** How long ago, from now (milliseconds); the time itself if it does not parse. */
export function ago(time: string | null | undefined, now: number): string {
  if (!time) return "–";
  const seconds = Math.round((now - Date.parse(time)) / 1000);
  if (Number.isNaN(seconds)) return time;
  if (seconds < 90) return `${Math.max(0, seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}
