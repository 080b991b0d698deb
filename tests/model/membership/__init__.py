"""A second model: one transaction per task, fenced by the membership of the consumer group; see ../README.md."""

from .variants import VARIANTS

__all__ = ["VARIANTS"]
