"""Children that never outlive their parent: even when the parent is killed by SIGKILL, its brokers and jobs go too.

PR_SET_PDEATHSIG would not do: it fires when the *thread* that forked ends, and it is Linux only. Here a tiny process holds the reading
end of a pipe. Whoever is to be watched writes its process id into the pipe before it becomes the real program, so there is no moment at
which a child runs unknown to the watcher. When the last writing end closes, the parent is gone: the watcher kills what is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

# sh announces itself and then becomes the program: the process id stays, the pipe is closed. `-$$` is its process group.
_ANNOUNCE = 'echo "$$" >&0; exec "$@" </dev/null'


class Watch:
    """Starts children in process groups of their own and sees to it that they end with this process.

    remove: directories that the watcher deletes once the children are dead. Closing kills whatever still runs.
    """

    def __init__(self, remove: Sequence[Path] = ()) -> None:
        reading, self._writing = os.pipe()
        argv = [sys.executable, "-I", "-S", __file__, *(str(path) for path in remove)]
        try:
            # A session of its own: Ctrl-C at the terminal reaches us, not the watcher.
            self._process = subprocess.Popen(argv, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True)
        finally:
            os.close(reading)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a program, watched, as leader of its own session. Its standard input is empty."""
        command = ["/bin/sh", "-c", _ANNOUNCE, "sh", *argv]
        return subprocess.Popen(
            command, stdin=self._writing, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
        )

    def close(self, timeout: float = 30) -> None:
        """Kills the children that still run, removes the directories, and waits (seconds) until the watcher has ended."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
        self._process.wait(timeout)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _main(remove: Sequence[str]) -> None:
    import shutil
    import signal
    import time

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Reads until the last writer has gone.
    started = [int(line) for line in sys.stdin]
    for pid in started:
        _kill_group(pid, signal.SIGKILL)
    for path in remove:
        # A process that has just been killed may still be writing.
        for _ in range(50):
            shutil.rmtree(path, ignore_errors=True)
            if not os.path.lexists(path):
                break
            time.sleep(0.1)


def _kill_group(pid: int, signal_number: int) -> None:
    """Kills the group that pid leads. A group exists as long as any of its members; a number that was given to somebody else
    since is no group leader started by us in all but the rarest case, and killpg then finds no such group."""
    try:
        os.killpg(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    _main(sys.argv[1:])
