// The chain from the application that writes the source to the one that reads the sink; the weakest link stands out.

import type { Chain } from "./api";

export function ChainView({ chain }: { chain: Chain }) {
  return (
    <>
      <p>
        The position moves {chain.position}. After a crash {chain.afterACrash}. The reader has to: {chain.readerHasTo}.
      </p>
      <ol class="chain">
        {chain.links.map((link) => (
          <li key={`${link.name} ${link.subject}`} class={link.weakest ? "weakest" : link.caveat ? "caveat" : ""}>
            <p class="link-name">
              {link.name}
              {link.weakest && <strong class="tag">weakest link</strong>}
            </p>
            <p class="subject">{link.subject}</p>
            {link.caveat && <p class="why-caveat">{link.caveat}</p>}
            {link.settings.length > 0 && (
              <details>
                <summary>
                  {link.settings.length} setting{link.settings.length === 1 ? "" : "s"}
                  <span class="hidden"> of {link.name} {link.subject}</span>
                </summary>
                <dl class="settings">
                  {link.settings.map((s) => (
                    <div key={s.name}>
                      <dt>
                        {s.name} = {s.value}
                      </dt>
                      <dd>{s.reason}</dd>
                    </div>
                  ))}
                </dl>
              </details>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}
