"""Sequence diagrams: participants with lifelines, and steps from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pictures.svg import (
    BOLD,
    LINE_HEIGHT,
    SIZE,
    SMALL,
    Picture,
    Tone,
    arrow,
    box,
    cross,
    line,
    lines_of_text,
    rectangle,
    text_width,
    wrap,
)

_TOP, _HEADER, _SIDE = 16, 50, 16  # px: above the headers, their height, beside the outer ones
_FIRST = _TOP + _HEADER + 30  # px, the first step
_PADDING = 9  # px, in a note
_GAP = 14  # px, between two steps


@dataclass(frozen=True)
class Message:
    """A request or an answer. lost: it does not arrive."""

    source: str
    target: str
    content: str
    tone: Tone = Tone.PLAIN
    answer: bool = False  # dashed
    lost: bool = False


@dataclass(frozen=True)
class Note:
    """What is true of a participant, or happens in it. dies: it ends here."""

    participant: str
    content: str
    tone: Tone = Tone.PLAIN
    dies: bool = False


@dataclass(frozen=True)
class Result:
    """The last line, over the whole width."""

    content: str
    tone: Tone


Step = Message | Note | Result


@dataclass(frozen=True)
class Diagram:
    """A diagram before it is drawn."""

    name: str
    title: str
    participants: tuple[str, ...]
    steps: tuple[Step, ...]
    spacing: int = 200  # px between two lifelines


def draw(diagram: Diagram) -> Picture:
    """The diagram as a picture. Its description has every step as a sentence."""
    columns = {name: _SIDE + diagram.spacing * (n + 0.5) for n, name in enumerate(diagram.participants)}
    width = 2 * _SIDE + diagram.spacing * len(columns)
    placed: list[str] = []
    ends: dict[str, float] = {}
    y = float(_FIRST)
    for step in diagram.steps:
        height, elements = _draw(step, columns, y, width, diagram.spacing)
        placed += elements
        if isinstance(step, Note) and step.dies:
            ends[step.participant] = y + height
        y += height + _GAP
    headers = [
        box((x - diagram.spacing / 2 + 10, _TOP, diagram.spacing - 20, _HEADER), name) for name, x in columns.items()
    ]
    last = diagram.steps[-1]
    result = _height(_result_lines(last, width), SIZE) + _GAP if isinstance(last, Result) else 0
    lifelines = [
        line(x, _TOP + _HEADER, x, ends.get(name, y - _GAP - result), dashed=True) for name, x in columns.items()
    ]
    return Picture(
        diagram.name,
        diagram.title,
        " ".join(_sentences(diagram.steps)),
        width,
        round(y + 2),
        (*lifelines, *headers, *placed),
    )


def _draw(step: Step, columns: dict[str, float], y: float, width: int, spacing: int) -> tuple[float, list[str]]:
    """The height of a step in px, and its elements."""
    match step:
        case Message():
            return _message(step, columns, y)
        case Note():
            lines = wrap(step.content, spacing - 20 - 2 * _PADDING, SMALL)
            height = _height(lines, SMALL)
            x = columns[step.participant]
            elements = [
                rectangle(x - spacing / 2 + 10, y, spacing - 20, height, step.tone),
                lines_of_text(x, y + height / 2, lines, size=SMALL, style="small"),
            ]
            if step.dies:
                elements.append(cross(x, y + height + 10))
                height += 18
            return height, elements
        case Result():
            lines = _result_lines(step, width)
            height = _height(lines, SIZE)
            return height, [
                rectangle(_SIDE, y, width - 2 * _SIDE, height, step.tone),
                lines_of_text(width / 2, y + height / 2, lines, style="bold"),
            ]


def _height(lines: Sequence[str], size: int) -> float:
    return len(lines) * size * LINE_HEIGHT + 2 * _PADDING


def _result_lines(step: Result, width: int) -> list[str]:
    return wrap(step.content, (width - 2 * _SIDE - 2 * _PADDING) / BOLD)


def _message(step: Message, columns: dict[str, float], y: float) -> tuple[float, list[str]]:
    start, end = columns[step.source], columns[step.target]
    room = abs(end - start) - 24
    lines = wrap(step.content, room, SMALL)
    above = len(lines) * SMALL * LINE_HEIGHT
    middle, at = (start + end) / 2, y + above + 6
    if any(text_width(part, SMALL) > room for part in lines):
        raise ValueError(f"{step.content!r} is wider than the distance of its participants; write less")
    label = lines_of_text(middle, y + above / 2, lines, size=SMALL, style="small label")
    side = 1 if end > start else -1
    if step.lost:
        stop = start + (end - start) * 0.62
        return above + 14, [
            label,
            arrow((start, at), (stop - side * 12, at), tone=Tone.BAD, dashed=step.answer),
            cross(stop, at, 7),
        ]
    return above + 10, [label, arrow((start, at), (end - side * 2, at), tone=step.tone, dashed=step.answer)]


def _sentences(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        match step:
            case Message():
                ending = ", which does not arrive" if step.lost else ""
                yield f"{step.source} to {step.target}: {step.content}{ending}."
            case Note():
                yield f"{step.participant}: {step.content}{', and ends' if step.dies else ''}."
            case Result():
                yield f"Result: {step.content}"
