"""The pictures of the documentation: current, readable in both themes, with a text, and true to what they show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from draw_pictures import PLACE, files, pictures
from pictures import losses
from pictures.sequence import Diagram, Message, Note, Result, draw
from pictures.svg import DARK, LIGHT, Colours, Picture, Tone, box, contrast, wrap
from simulator.scenarios import SCENARIOS
from unit.documents import DOCUMENTS, ROOT

PICTURES = {picture.name: picture for picture in pictures()}
TEXT_CONTRAST, SHAPE_CONTRAST = 4.5, 3.0  # WCAG 2.2, criteria 1.4.3 and 1.4.11


def test_the_committed_pictures_are_current() -> None:
    committed = {file.name: file.read_text() for file in PLACE.glob("*.svg")}
    assert committed == dict(files()), "run: make pictures"


def alternatives(name: str) -> list[str]:
    """The alternative texts with which documents show a picture."""
    return [
        text
        for file in DOCUMENTS
        for text, path in re.findall(r"!\[([^]]*)\]\(([^)\s]+)\)", file.read_text())
        if (file.parent / path).resolve() == ROOT / "docs" / "images" / f"{name}.svg"
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_a_document_shows_it_with_its_title_as_the_alternative_text(name: str) -> None:
    title = PICTURES[name].title
    assert alternatives(name), f"no page shows it; add to one: ![{title}](images/{name}.svg)"
    assert set(alternatives(name)) == {title}


@pytest.mark.parametrize("name", PICTURES)
def test_it_has_a_title_and_a_description_and_loads_nothing(name: str) -> None:
    content = PICTURES[name].svg()
    root = ElementTree.fromstring(content)  # noqa: S314  made here
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert root.findtext(f"{space}title") == PICTURES[name].title
    assert len(root.findtext(f"{space}desc") or "") > 80
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|href|url\(|<script|<image", content) == []


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_and_shape_has_enough_contrast(colours: Colours) -> None:
    for background in (colours.background, *colours.fill.values()):
        assert contrast(colours.text, background) >= TEXT_CONTRAST
    assert contrast(colours.muted, colours.background) >= TEXT_CONTRAST
    for shape in (colours.line, *colours.stroke.values()):
        assert contrast(shape, colours.background) >= SHAPE_CONTRAST


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#123456", "#123456") == 1


def test_a_text_that_does_not_fit_is_refused() -> None:
    box((0, 0, 120, 60), "sink", "rows and offsets")
    with pytest.raises(ValueError, match="higher than its box"):
        box((0, 0, 120, 40), "sink", "rows and offsets, and many other things")
    with pytest.raises(ValueError, match="wider than"):
        wrap("bootstrapServers", 40)
    with pytest.raises(ValueError, match="leaves the picture"):
        Picture("p", "t", "d", 100, 100, (box((20, 20, 90, 60), "sink"),)).svg()


def outcome(picture: Picture) -> tuple[bool, bool]:
    """Whether a record is lost, and whether one is duplicated, by the last sentence of the picture."""
    result = picture.description.rpartition("Result: ")[2]
    return "lost" in result, "duplicated" in result


@pytest.mark.parametrize("name", losses.SCENARIOS)
def test_a_case_ends_as_its_scenario_does(name: str) -> None:
    scenario = next(s for s in SCENARIOS if s.name == losses.SCENARIOS[name])
    _, counts = scenario.end()
    assert outcome(PICTURES[name]) == (counts.lost > 0, counts.duplicated > 0)


def test_every_case_has_a_scenario() -> None:
    assert {picture.name for picture in losses.pictures()} == set(losses.SCENARIOS)


def test_a_diagram_describes_its_steps() -> None:
    diagram = Diagram(
        "d",
        "A request is lost",
        ("client", "server"),
        (
            Message("client", "server", "request 1", lost=True),
            Note("server", "has nothing", dies=True),
            Result("Request 1 is lost.", Tone.BAD),
        ),
    )
    assert draw(diagram).description == (
        "client to server: request 1, which does not arrive. server: has nothing, and ends. Result: Request 1 is lost."
    )
