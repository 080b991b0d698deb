"""Whether the principal has the permissions of each role: one check for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackwright.planning.acls import Answers, Kind, Need, Operation, Resource
from ackwright.planning.permissions import Role, grants, lacking
from ackwright.planning.readiness import Check, Verdict


def permission_checks(needs: Mapping[Role, Iterable[Need]], answers: Answers | None) -> tuple[Check, ...]:
    """One check for each role. answers None: the brokers have no authoriser."""
    return tuple(_check(role, tuple(required), answers) for role, required in needs.items())


def _check(role: Role, required: tuple[Need, ...], answers: Answers | None) -> Check:
    name = f"permissions of the {role}"
    if answers is None:
        return Check(name, Verdict.OK, "not needed: the brokers have no authoriser")
    result, principal = lacking(required, answers), answers.principal
    if not result.missing and not result.unknown:
        count = sum(len(need.operations) for need in required)
        return Check(name, Verdict.OK, f"{principal} has all {count}")
    problems = [f"{principal} lacks {_listed(result.missing)}"] if result.missing else []
    if result.unknown:
        problems.append(f"it is not known whether {principal} has {_listed(result.unknown)}")
    verdict = Verdict.FAILED if result.missing and role is not Role.AUDIT else Verdict.WARNING
    commands = (*grants(principal, result.missing), *grants(principal, result.unknown))
    return Check(name, verdict, "; ".join(problems), "\n".join(commands))


def _listed(operations: Mapping[Resource, tuple[Operation, ...]]) -> str:
    return ", ".join(f"{' and '.join(names)} on {_named(resource)}" for resource, names in operations.items())


def _named(resource: Resource) -> str:
    if resource.kind is Kind.CLUSTER:
        return "the cluster"
    return f"{resource.kind} {resource.name}{'*' if resource.prefixed else ''}"
