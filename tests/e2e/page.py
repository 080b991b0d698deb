"""A page of the documentation as blocks of commands, files and expected output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

EXIT_CODES = {"ackwright diff": 1}  # all other commands end with 0


@dataclass(frozen=True)
class Block:
    """A fenced block of commands, or the content of a file."""

    text: str
    file: str = ""  # the file that the reader writes; empty for commands
    shown: tuple[str, ...] = ()  # the lines of output that the page shows

    @property
    def script(self) -> str:
        """A shell script that does what the block asks the reader to do, and fails if a command's exit code differs."""
        if self.file:
            return f"cat > {self.file} <<'EOF'\n{self.text}EOF\n"
        code = next(
            (code for command, code in EXIT_CODES.items() if re.search(rf"^{command}", self.text, re.MULTILINE)), 0
        )
        if not code:
            return self.text
        *before, last = self.text.splitlines()
        return "\n".join([*before, "code=0", f"{last} || code=$?", f"test $code = {code}", ""])


def blocks(page: str) -> list[Block]:
    """The blocks of a page in order. A block of kind `text` is the output of the block before it."""
    result: list[Block] = []
    for prose, kind, indented in re.findall(r"(.*?)^ *```(\w+)\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL):
        text = dedent(indented)
        match kind:
            case "sh":
                result.append(Block(text))
            case "text":
                result[-1] = Block(result[-1].text, shown=tuple(text.splitlines()))
            case _:
                result.append(Block(text, file=re.findall(r"as `(\S+)`", prose)[-1]))
    return result


def missing(shown: Sequence[str], output: str) -> list[str]:
    """The shown lines that do not occur in the output in this order. `…` matches any text within a line."""
    rest = re.sub(r"\x1b\[[\d;]*m", "", output)
    missing_lines = []
    for line in shown:
        pattern = r"[^\S\n]+".join(re.escape(word).replace("…", ".*") for word in line.split())
        if match := re.search(pattern, rest):
            rest = rest[match.end() :]
        else:
            missing_lines.append(line)
    return missing_lines
