"""Adds the root of the checkout to the module path, because the package `bench` is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
