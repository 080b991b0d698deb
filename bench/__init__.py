"""Benchmarks of the delivery engine: `python -m bench`, see __main__."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the benchmarks start the servers that the tests start
