"""The budgets of a search: how often each event may still occur in one run, as a tuple that a state carries."""

from __future__ import annotations


def limits(parameters: object, indexes: type) -> tuple[int, ...]:
    """The budgets at the start: for each index of the class, the parameter with its name in lower case."""
    names = sorted((index, name) for name, index in vars(indexes).items() if name.isupper())
    return tuple(getattr(parameters, name.lower()) for _, name in names)


def spend(budgets: tuple[int, ...], index: int, n: int = 1) -> tuple[int, ...]:
    """The budgets after n events of this index."""
    return (*budgets[:index], budgets[index] - n, *budgets[index + 1 :])
