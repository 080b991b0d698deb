"""Benchmarks of the delivery engine, run by `python -m bench`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the benchmarks start the same servers as the tests
