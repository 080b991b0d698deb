"""The command line as tests start it, from the checkout and in the tests' own interpreter."""

from __future__ import annotations

import sys

ACKWRIGHT = (sys.executable, "-c", "from ackwright.cli.main import main; main()")
