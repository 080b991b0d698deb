"""A page of the documentation, as what its reader does and sees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

ENDS_WITH = {"ackwright diff": 1}  # every other command ends with 0


@dataclass(frozen=True)
class Block:
    """A fenced block of commands, or of a file to be written. shown: what the page says of its output."""

    text: str
    file: str = ""
    shown: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        if self.file:
            return f"cat > {self.file} <<'EOF'\n{self.text}EOF\n"
        code = next(
            (code for command, code in ENDS_WITH.items() if re.search(rf"^{command}", self.text, re.MULTILINE)), 0
        )
        if not code:
            return self.text
        *before, last = self.text.splitlines()
        return "\n".join([*before, "code=0", f"{last} || code=$?", f"test $code = {code}", ""])


def blocks(page: str) -> list[Block]:
    """What there is to do on a page, in its order."""
    found: list[Block] = []
    for prose, kind, indented in re.findall(r"(.*?)^ *```(\w+)\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL):
        text = dedent(indented)
        match kind:
            case "sh":
                found.append(Block(text))
            case "text":
                found[-1] = Block(found[-1].text, shown=tuple(text.splitlines()))
            case _:
                found.append(Block(text, file=re.findall(r"as `(\S+)`", prose)[-1]))
    return found


def missing(shown: Sequence[str], output: str) -> list[str]:
    """The lines that the page shows and that are not in the output, in this order. `…` is anything within a line."""
    left = re.sub(r"\x1b\[[\d;]*m", "", output)
    lacking = []
    for line in shown:
        pattern = r"[^\S\n]+".join(re.escape(word).replace("…", ".*") for word in line.split())
        if at := re.search(pattern, left):
            left = left[at.end() :]
        else:
            lacking.append(line)
    return lacking
