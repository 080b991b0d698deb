"""What a guarantee promises is in one table, and everything else reads it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwright.api.resource import Tolerate
from ackwright.api.spec import load
from ackwright.planning import guarantees, topic_validation
from ackwright.planning.guarantees import TERMS
from ackwright.planning.promises import PROMISES
from ackwright_stream.jobspec import Guarantee
from unit.documents import ROOT

OPERATOR = Path(guarantees.__file__).parents[1]
# Tables of guarantees; sinks, which know what theirs do to a guarantee; the demo, which shows each.
MAY_NAME_ONE = ("planning/guarantees.py", "planning/promises.py", "sinks/", "local/demo/", "cli/demo.py")


def test_no_other_module_of_the_operator_asks_which_guarantee_is_declared() -> None:
    naming = {
        str(path.relative_to(OPERATOR))
        for path in OPERATOR.rglob("*.py")
        if any(f"Guarantee.{guarantee.name}" in path.read_text() for guarantee in Guarantee)
    }
    assert {path for path in naming if not path.startswith(MAY_NAME_ONE)} == set()
    assert "planning/promises.py" in naming, "control: a module that names one is in the set"


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_default_of_broker_failures_is_the_promised_one(guarantee: Guarantee) -> None:
    declared = load(ROOT / "examples" / f"delayed-flights-{guarantee}.yaml")
    without_choice = declared.spec.model_copy(update={"tolerate": Tolerate()})
    assert without_choice.broker_failures == PROMISES[guarantee].broker_failures


def test_cel_and_its_message_have_the_promised_defaults() -> None:
    """The API server computes f for each guarantee as the operator does."""
    assert topic_validation._F.endswith("self.guarantee == 'at-most-once' ? 0 : 1)")
    assert "its default is 1, and 0 for at-most-once" in topic_validation._F_IS
    assert {g: p.broker_failures for g, p in PROMISES.items()} == {
        Guarantee.AT_MOST_ONCE: 0,
        Guarantee.AT_LEAST_ONCE: 1,
        Guarantee.EXACTLY_ONCE: 1,
    }


def test_each_guarantee_has_terms_with_its_promise() -> None:
    assert {g: terms.promise for g, terms in TERMS.items()} == PROMISES
    assert [g for g, terms in TERMS.items() if terms.transactional] == [Guarantee.EXACTLY_ONCE]
    assert [g for g, terms in TERMS.items() if terms.promise.needs_internal_topics] == [Guarantee.EXACTLY_ONCE]
