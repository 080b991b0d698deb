"""The benchmarks are run from the checkout and are not installed: their package is found from its root."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
