"""Databases on a real PostgreSQL server, and a reader that shares no code with the sink: psql."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from ackwright.local.postgres import ADMIN, EmbeddedPostgres
from ackwright.sinks.postgres import PostgresSink as Declared
from ackwright_stream.jobspec import PostgresSink

PASSWORD = "right-horse"
ROLE = "pipeline"


class Postgres(EmbeddedPostgres):
    """A server on which every role has the same password."""

    def __init__(self, host: str = "127.0.0.1", clients: str = "127.0.0.1/32") -> None:
        super().__init__(password=PASSWORD, host=host, clients=clients)


class Database:
    """A new database with a role that may use it, and a login as in a mounted Secret."""

    def __init__(self, server: Postgres, directory: Path) -> None:
        self.server, self.name = server, f"d{uuid.uuid4().hex[:8]}"
        self.role = f"{ROLE}_{self.name}"
        self.secrets = directory / "secrets"
        self.credentials = self.secrets / "db-login"
        self.credentials.mkdir(parents=True)
        (self.credentials / "username").write_text(self.role)
        (self.credentials / "password").write_text(PASSWORD)
        (self.secrets / "db-ca").mkdir()
        shutil.copy(server.ca, self.secrets / "db-ca" / "ca.crt")
        server.sql(f"CREATE ROLE {self.role} LOGIN PASSWORD '{PASSWORD}'")
        server.sql(f"CREATE DATABASE {self.name} OWNER {self.role}")

    def sql(self, statement: str, *, admin: bool = False) -> list[list[str]]:
        """The rows of a statement of the role, or of the administrator."""
        return self.server.sql(statement, self.name, ADMIN if admin else self.role)

    def sink(self, table: str = "rows", **fields: Any) -> PostgresSink:
        """The sink's part of a jobspec. Unencrypted unless `tls` is set."""
        unencrypted = {**self.spec(table)["postgres"], "tls": None}
        job = Declared.model_validate(unencrypted).to_job("a group")
        return replace(job, **{"credentials": str(self.credentials), **fields})

    def spec(self, table: str = "rows", **fields: object) -> dict[str, dict[str, object]]:
        """spec.sink of a pipeline, with TLS."""
        return {
            "postgres": {
                "host": self.server.host,
                "port": self.server.port,
                "database": self.name,
                "credentialsSecret": {"name": "db-login"},
                "tls": {"caSecret": {"name": "db-ca"}},
                "table": table,
                **fields,
            }
        }
