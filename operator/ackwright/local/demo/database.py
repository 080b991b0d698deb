"""The demo's database on a PostgreSQL server: a role, its database, and the Secrets with which a pipeline logs in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from ackwright.local.postgres import EmbeddedPostgres

_NAME = "demo"  # of the role and its database
_LOGIN, _CA = "db-login", "db-ca"


@dataclass(frozen=True)
class Database:
    """Where the pipelines of a demo write."""

    server: EmbeddedPostgres
    secrets: Path  # has each Secret as a directory of files
    fields: Mapping[str, Any]  # spec.sink.postgres without the table


def create(server: EmbeddedPostgres, secrets: Path) -> Database:
    """Creates the role, its database, and the Secrets; the job creates the tables. Raises AckwrightError."""
    password = token_urlsafe(16)
    server.sql(f"CREATE ROLE {_NAME} LOGIN PASSWORD '{password}'")
    server.sql(f"CREATE DATABASE {_NAME} OWNER {_NAME}")
    for name in (_LOGIN, _CA):
        (secrets / name).mkdir(parents=True, mode=0o700)
    (secrets / _LOGIN / "username").write_text(_NAME)
    (secrets / _LOGIN / "password").write_text(password)
    shutil.copyfile(server.ca, secrets / _CA / "ca.crt")
    fields = {
        "host": server.host,
        "port": server.port,
        "database": _NAME,
        "credentialsSecret": {"name": _LOGIN},
        "tls": {"caSecret": {"name": _CA}},
    }
    return Database(server, secrets, fields)
