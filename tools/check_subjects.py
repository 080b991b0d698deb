"""Fails for a commit whose subject is longer than 72 characters.

python tools/check_subjects.py BASE..HEAD       the commits of a range, merges excepted
python tools/check_subjects.py --message FILE   the message in a file, as git passes it to a commit-msg hook
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LIMIT = 72


def subjects(arguments: Sequence[str]) -> list[str]:
    """The subjects to check."""
    if arguments[0] == "--message":
        lines = [line for line in Path(arguments[1]).read_text().splitlines() if not line.startswith("#")]
        return [next((line for line in lines if line.strip()), "")]
    git = ["git", "log", "--no-merges", "--format=%s", *arguments]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()


def main(arguments: Sequence[str]) -> int:
    """Prints each subject that is too long, or empty; returns the exit code."""
    wrong = [s for s in subjects(arguments) if not 0 < len(s) <= LIMIT]
    for subject in wrong:
        print(
            f"{len(subject)} characters instead of 1 to {LIMIT}: {subject!r}; move the reasons to the body",
            file=sys.stderr,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
