// The view is in the fragment of the address: #/, #/pipeline/NAMESPACE/NAME, #/plan, #/plan/NAMESPACE/NAME, #/simulator.

import { useEffect, useState } from "preact/hooks";

export interface Route {
  readonly view: string;
  readonly namespace: string;
  readonly name: string;
}

export function route(hash: string): Route {
  const [view = "", namespace = "", name = ""] = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { view, namespace, name };
}

export const address = (view: string, namespace = "", name = ""): string =>
  `#/${[view, namespace, name].filter(Boolean).map(encodeURIComponent).join("/")}`;

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route(hash);
}
