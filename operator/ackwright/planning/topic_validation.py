"""Validations of spec.topics: replication that tolerates the loss of f brokers, settings, and names."""

from __future__ import annotations

from collections.abc import Iterator

from ackwright.api.checks import Broken, Cel, Validation, literal
from ackwright.api.spec import DeliveryPipeline, Topic
from ackwright.api.topic_names import not_reserved
from ackwright.planning.promises import PROMISES
from ackwright.planning.topic_settings import SETTING_VALIDATIONS
from ackwright.planning.topics import (
    CLEANUP,
    MAX_REPLICAS,
    MIN_INSYNC,
    UNCLEAN,
    min_insync,
    replication_factor,
)

_READS = ("spec.guarantee", "spec.tolerate", "spec.topics")

# f unless the spec says it: that of most guarantees, and that of the others.
_USUAL_F = max(promise.broker_failures for promise in PROMISES.values())
_OTHER_F = {g: promise.broker_failures for g, promise in PROMISES.items() if promise.broker_failures != _USUAL_F}
# The same values in CEL, where t is a topic and f the number of brokers that may be lost.
_F = (
    "(has(self.tolerate) && has(self.tolerate.brokerFailures) ? self.tolerate.brokerFailures : "
    + "".join(f"self.guarantee == '{guarantee}' ? {f} : " for guarantee, f in _OTHER_F.items())
    + f"{_USUAL_F})"
)
_F_IS = (
    f" (f is tolerate.brokerFailures; its default is {_USUAL_F}, and "
    + " and ".join(f"{f} for {guarantee}" for guarantee, f in _OTHER_F.items())
    + ")"
)
_NUMBER = "'^0*[1-9][0-9]*$'"
_MIN_INSYNC = f"t.config['{MIN_INSYNC}']"
# Text that is no number is refused by another validation.
_HAS_MIN_INSYNC = f"has(t.config) && '{MIN_INSYNC}' in t.config && {_MIN_INSYNC}.matches({_NUMBER})"
_LEAST = f"({_HAS_MIN_INSYNC} ? int({_MIN_INSYNC}) : f + 1)"


def _each_topic(condition: str, detail: str = "", remedy: str = "") -> Cel:
    """Of every t in spec.topics, with f. CEL binds a name by a list with one entry."""

    def expand(text: str) -> str:
        # The text is put together inside the list: outside, the API server no longer knows how long a name can be, and
        # assumes the worst.
        return f"[{_F}].map(f, self.topics.map(t, !({condition}), t.name + {literal(': ' + text)})[0])[0]"

    return Cel(
        f"!has(self.topics) || [{_F}].all(f, self.topics.all(t, {condition}))",
        on="spec",
        at=".topics",
        detail=detail,
        remedy=remedy,
        expand=expand,
    )


def _topics(pipeline: DeliveryPipeline) -> Iterator[tuple[str, Topic, int]]:
    """The topics, each with its path and f."""
    f = pipeline.spec.broker_failures
    return ((f"spec.topics[{i}]", topic, f) for i, topic in enumerate(pipeline.spec.topics))


def _setting(path: str, name: str) -> str:
    return f"{path}.config[{name!r}]"


def _few_in_sync(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, topic, f in _topics(pipeline):
        least = min_insync(topic, f)
        if least is not None and least < f + 1:
            yield Broken(
                _setting(path, MIN_INSYNC),
                topic.config[MIN_INSYNC],
                f": {least} < {f}+1; with {f} lost an acknowledged record may be lost",
                f'remove it, write "{f + 1}", or declare tolerate: {{brokerFailures: {least - 1}}}',
            )


def _few_replicas(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, topic, f in _topics(pipeline):
        least, replicas = min_insync(topic, f), replication_factor(topic, f)
        if least is not None and replicas < least + f:
            yield Broken(
                f"{path}.replicationFactor",
                replicas,
                f": {replicas} < {least} + {f}; with {f} lost, writes stop",
                f"remove it, or write {least + f}",
            )


def _many_replicas(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, topic, f in _topics(pipeline):
        least, replicas = min_insync(topic, f), replication_factor(topic, f)
        if least is not None and replicas >= least + f and replicas > MAX_REPLICAS:
            yield Broken(_setting(path, MIN_INSYNC), least, f": {replicas}")


def _unclean_leaders(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, topic, f in _topics(pipeline):
        if f > 0 and topic.config.get(UNCLEAN, "false").strip().lower() != "false":
            yield Broken(_setting(path, UNCLEAN), topic.config[UNCLEAN])


def _no_number_in_sync(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, topic, f in _topics(pipeline):
        if min_insync(topic, f) is None:
            yield Broken(_setting(path, MIN_INSYNC), topic.config[MIN_INSYNC], remedy=f'remove it, or write "{f + 1}"')


def _unknown_cleanup(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for path, topic, _ in _topics(pipeline):
        policies = {policy.strip() for policy in topic.config.get(CLEANUP, "delete").split(",")}
        if not policies <= {"delete", "compact"}:
            yield Broken(_setting(path, CLEANUP), topic.config[CLEANUP])


def _names(pipeline: DeliveryPipeline) -> Iterator[tuple[str, str]]:
    """The topics that the source and spec.topics name, each with the path of its field."""
    yield from ((f"spec.source.topics[{i}]", name) for i, name in enumerate(pipeline.spec.source.topics))
    yield from _declared_names(pipeline)


def _declared_names(pipeline: DeliveryPipeline) -> Iterator[tuple[str, str]]:
    return ((f"spec.topics[{i}].name", topic.name) for i, topic in enumerate(pipeline.spec.topics))


def _repeated(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for prefix in ("spec.source.topics", "spec.topics"):
        earlier = set[str]()
        for field, name in _names(pipeline):
            if field.startswith(f"{prefix}["):
                if name in earlier:
                    yield Broken(field, name)
                earlier.add(name)


def _colliding(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    first = dict[str, str]()
    for field, name in _declared_names(pipeline):
        other = first.setdefault(name.replace(".", "_"), name)
        if other != name:
            yield Broken(field, name, remedy=f"choose another name; it collides with {other}")


TOPIC_VALIDATIONS: tuple[Validation[DeliveryPipeline], ...] = (
    Validation(
        "breaks min.insync.replicas ≥ f+1",
        "remove it, or tolerate fewer failures",
        _READS,
        _few_in_sync,
        cel=(
            _each_topic(
                f"!({_HAS_MIN_INSYNC}) || int({_MIN_INSYNC}) >= f + 1",
                detail=f"{_F_IS}; with f lost an acknowledged record may be lost",
            ),
        ),
    ),
    Validation(
        "breaks replication.factor ≥ min.insync.replicas + f",
        "remove it, or raise it",
        _READS,
        _few_replicas,
        cel=(
            _each_topic(
                f"!has(t.replicationFactor) || t.replicationFactor >= {_LEAST} + f",
                detail=f"{_F_IS}; with f lost, writes stop",
            ),
        ),
    ),
    Validation(
        f"needs more replicas than the {MAX_REPLICAS} that Kafka allows",
        "lower it",
        _READS,
        _many_replicas,
        cel=(_each_topic(f"has(t.replicationFactor) || {_LEAST} + f <= {MAX_REPLICAS}"),),
    ),
    Validation(
        f"{UNCLEAN} contradicts tolerate.brokerFailures > 0: an unclean leader lacks acknowledged records",
        "remove it, or declare tolerate: {brokerFailures: 0}",
        _READS,
        _unclean_leaders,
        cel=(
            _each_topic(
                f"!has(t.config) || !('{UNCLEAN}' in t.config) || f == 0 || "
                f"t.config['{UNCLEAN}'].trim().lowerAscii() == 'false'"
            ),
        ),
    ),
    Validation(
        "must be a positive whole number",
        'remove it, or write "2"',
        _READS,
        _no_number_in_sync,
        cel=(
            Cel(
                f"!has(self.config) || !('{MIN_INSYNC}' in self.config) || "
                f"(self.config['{MIN_INSYNC}'].size() < 6 && self.config['{MIN_INSYNC}'].matches({_NUMBER}))",
                on="spec.topics[]",
                at=".config",
            ),
        ),
    ),
    Validation(
        "cleanup.policy must be delete, compact or both",
        "write delete",
        _READS,
        _unknown_cleanup,
        cel=(
            Cel(
                f"!has(self.config) || !('{CLEANUP}' in self.config) || self.config['{CLEANUP}']"
                r".matches('^\\s*(delete|compact)\\s*(,\\s*(delete|compact)\\s*)*$')",
                on="spec.topics[]",
                at=".config",
            ),
        ),
    ),
    Validation(
        "is listed more than once",
        "remove one of them",
        ("spec.source.topics", "spec.topics"),
        _repeated,
        not_in_cel="the schema declares both lists as sets of names",
    ),
    # The metrics of such topics would collide.
    Validation(
        "two names differ in . and _ alone, which brokers refuse",
        "choose another name",
        ("spec.source.topics", "spec.topics"),
        _colliding,
        cel=(
            Cel(
                # Each name is replaced in once for itself and once for each other: twice would be too expensive for a
                # hundred long names.
                "self.all(t, [t.name.replace('.', '_')].all(plain, "
                "self.filter(other, other.name.replace('.', '_') == plain).all(other, other.name == t.name)))",
                on="spec.topics",
            ),
        ),
    ),
    *SETTING_VALIDATIONS,
    *not_reserved(("spec.source.topics", "spec.topics"), ("spec.source.topics[]", "spec.topics[].name"), _names),
)
