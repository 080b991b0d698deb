"""A kubeconfig file for a server of a test."""

from __future__ import annotations

import json
from pathlib import Path


def kubeconfig(directory: Path, url: str) -> str:
    """Writes the file; returns its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (directory / "kubeconfig").write_text(json.dumps(content))
    return str(directory / "kubeconfig")
