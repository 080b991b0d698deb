"""`make crd`: writes the CustomResourceDefinition, from the models and validations of a pipeline."""

from __future__ import annotations

import sys
from pathlib import Path

from ackwright.api.crd import crd_yaml
from ackwright.planning.validation import validations

FILE = Path(__file__).resolve().parents[1] / "crds" / "deliverypipelines.ackwright.io.yaml"


def main() -> int:
    """Writes the file. Returns the exit code."""
    FILE.write_text(crd_yaml(validations()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
