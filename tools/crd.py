"""`make crd`: writes the CRD and the JSON Schema for editors, from the models and validations of a pipeline."""

from __future__ import annotations

import sys
from pathlib import Path

from ackwright.api.crd import crd_yaml
from ackwright.api.json_schema import schema_json
from ackwright.planning.validation import validations

_ROOT = Path(__file__).resolve().parents[1]
FILE = _ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"
SCHEMA = _ROOT / "schemas" / "deliverypipeline-v1alpha1.json"


def main() -> int:
    """Writes the files. Returns the exit code."""
    SCHEMA.write_text(schema_json(), encoding="utf-8")
    FILE.write_text(crd_yaml(validations()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
