"""Fails on words that say nothing, or that only this project uses. The list and its exceptions: tools/words.toml.

python tools/check_words.py              every hit with what to write instead; exit code 1 if there is one
python tools/check_words.py --report     the counts by word and by file; exit code 0
python tools/check_words.py --count REV  the counts by word and directory, at a git revision and now; exit code 0
"""

from __future__ import annotations

import functools
import io
import re
import subprocess
import sys
import tarfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = tomllib.loads((ROOT / "tools" / "words.toml").read_text())
# A word ends at an underscore, a digit, or where camel case begins the next word.
_WORD = r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{})(?:(?![A-Za-z])|(?<=[a-z])(?=[A-Z]))"
_PATTERNS = {kind: [(w, re.compile(_WORD.format(w))) for w in LIST[kind]] for kind in ("anywhere", "names")}
# Most lines have none of the words, which one search shows.
_ANY = {kind: re.compile("|".join(_WORD.format(w) for w in LIST[kind])) for kind in _PATTERNS}
Hit = tuple[str, int, str, str]  # file, line, the pattern of the list, the text that matches


def hits(file: str, text: str) -> Iterator[Hit]:
    """Every hit in the text of a file."""
    exceptions = [re.compile(e["pattern"]) for e in LIST["allow"] if any(fnmatch(file, f) for f in e["files"])]
    for kind, number, part in _parts(file, text):
        if not _has_any(kind, part):
            continue
        allowed = [m.span() for e in exceptions for m in e.finditer(part)]
        for word, pattern in _PATTERNS[kind]:
            for m in pattern.finditer(part):
                if not any(start <= m.start() and m.end() <= end for start, end in allowed):
                    yield file, number, word, part if kind == "names" else m[0]


@functools.cache
def _has_any(kind: str, part: str) -> bool:
    return bool(_ANY[kind].search(part))


def _parts(file: str, text: str) -> Iterator[tuple[str, int, str]]:
    yield from (("anywhere", n, line) for n, line in enumerate(text.splitlines(), 1))
    if file.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not token.string.startswith("test_"):  # a sentence, not a name
                yield "names", token.start[0], token.string


def tree(revision: str | None = None) -> list[Hit]:
    """Every hit in the files that the list names: at a git revision, or as they are now."""
    if revision is None:
        places = [path for place in LIST["check"] for path in (ROOT / place, *(ROOT / place).rglob("*"))]
        texts = {str(path.relative_to(ROOT)): path.read_bytes() for path in places if path.is_file()}
    else:
        git = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(git.stdout)) as tar:
            files = {m.name: file for m in tar if (file := tar.extractfile(m))}
            texts = {name: file.read() for name, file in files.items() if name.split("/")[0] in LIST["check"]}
    checked = [file for file in texts if not any(fnmatch(file, pattern) for pattern in LIST["skip"])]
    return [hit for file in checked for hit in hits(file, texts[file].decode(errors="replace"))]


def main(arguments: Sequence[str]) -> int:
    """Prints what the arguments ask for; returns the exit code."""
    now = tree()
    if arguments[:1] == ["--count"]:
        before, after = (Counter((w, f.split("/")[0]) for f, _, w, _ in t) for t in (tree(arguments[1]), now))
        for word, place in sorted(before | after):
            print(f"{word:48} {place:12} {before[word, place]:6} {after[word, place]:6}")
        print(f"{'all':61} {before.total():6} {after.total():6}")
    elif arguments == ["--report"]:
        for name, column in (("word", 2), ("file", 0)):
            print(f"hits by {name}:", ", ".join(f"{k} {n}" for k, n in Counter(h[column] for h in now).most_common()))
    else:
        for file, line, word, text in now:
            print(f"{file}:{line}: {text!r}; write: {LIST['anywhere'].get(word) or LIST['names'][word]}")
        print(f"{len(now)} hits of tools/words.toml")
    return 1 if now and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
