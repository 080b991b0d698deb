"""The directory of state in memory."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Memory:
    """Files in memory."""

    texts: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)  # names, in the order of the writes

    def names(self, directory: str) -> list[str]:
        below = (path.removeprefix(f"{directory}/") for path in self.texts if path.startswith(f"{directory}/"))
        return sorted({path.partition("/")[0] for path in below})

    def read(self, file: str) -> str | None:
        return self.texts.get(file)

    def write(self, file: str, text: str) -> None:
        self.texts[file] = text
        self.written.append(file)

    def delete(self, file: str) -> None:
        self.texts.pop(file, None)
