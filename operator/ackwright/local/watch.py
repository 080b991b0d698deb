"""Child processes that never outlive their parent, even when SIGKILL ends the parent.

PR_SET_PDEATHSIG does not suffice: it fires when the *thread* that forked ends, and exists on Linux only. Here a small
process, the watcher, holds the reading end of a pipe. A child writes its process id into the pipe before it becomes the
real program, so the watcher knows every child that runs. When the last writing end closes, the parent is gone, and the
watcher kills the children that are left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from pwd import struct_passwd
from types import TracebackType
from typing import IO

# sh writes its process id and then becomes the program, which has the same id and not the pipe.
_ANNOUNCE = 'echo "$$" >&0; exec "$@" </dev/null'


class Watch:
    """Starts children, each as leader of a session, and ends them with this process, or when it is closed.

    remove: directories that the watcher deletes once the children are dead.
    """

    def __init__(self, remove: Sequence[Path] = ()) -> None:
        reading, self._writing = os.pipe()
        argv = [sys.executable, "-I", "-S", __file__, *(str(path) for path in remove)]
        try:
            # In a new session, so that Ctrl-C at the terminal reaches this process and not the watcher.
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
        account: struct_passwd | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a program as leader of a new session, with an empty standard input.

        account: that of the program; None: that of this process. Only root may choose another one.
        """
        command = ["/bin/sh", "-c", _ANNOUNCE, "sh", *argv]
        return subprocess.Popen(
            command,
            stdin=self._writing,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=account and [],
        )

    def close(self, timeout: float = 30) -> None:
        """Kills the children that still run, removes the directories, and waits for the watcher to end (seconds)."""
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
    # Reads until the last writing end is closed.
    started = [int(line) for line in sys.stdin]
    for pid in started:
        _kill_group(pid, signal.SIGKILL)
    for path in remove:
        # A process that was just killed may still write.
        for _ in range(50):
            shutil.rmtree(path, ignore_errors=True)
            if not os.path.lexists(path):
                break
            time.sleep(0.1)


def _kill_group(pid: int, signal_number: int) -> None:
    """Kills the process group that pid leads, which exists as long as any of its members.

    If the system has reused the number for another process, that one rarely leads a group, and then killpg fails.
    """
    try:
        os.killpg(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    _main(sys.argv[1:])
