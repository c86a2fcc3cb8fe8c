"""The landing page: what it says in which state, that its HTML is sound, and that nothing from outside becomes HTML."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from aes_exporter import __version__
from aes_exporter.explanation import answer, explain
from aes_exporter.model import Exemption, Failure, Host, Lane, Mask, NotApplicable, Outcome, Snapshot
from aes_exporter.page import page
from aes_exporter.state import State
from aes_exporter.vocabulary import Reason
from tests.hostile import HOSTILE, hostile
from tests.snapshots import (
    FRESH,
    HARDWARE,
    HOST,
    RUN,
    RUN_FAILED,
    RUN_PARTLY_FAILED,
    SNAPSHOT,
    SOFTWARE,
    measurement,
    run,
)

ENDED = RUN.started + RUN.duration_seconds
PARTLY = FRESH.begun().ended(RUN_PARTLY_FAILED)
FAILED = FRESH.begun().ended(RUN_FAILED)
MASK = Mask(place="/etc/environment", variable="OPENSSL_ia32cap", value="~0x200000200000000")
EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
ALL = pytest.mark.parametrize(
    "snapshot", [FRESH, FRESH.begun(), SNAPSHOT, PARTLY, FAILED], ids=["fresh", "begun", "full", "partly", "failed"]
)


class Document(HTMLParser):
    """What a page consists of: its tags and their attributes, its table cells and its text; unbalanced tags fail."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        """The text in the order in which it is read, without the style sheet, in single spaces."""
        return " ".join(" ".join(self.words).split())

    def values(self, attribute: str) -> list[str]:
        """Return the values of an attribute on all tags."""
        return [value or "" for _, attributes in self.tags for name, value in attributes.items() if name == attribute]


def html(snapshot: Snapshot, *, path: str = "/metrics", age: float = 75.0) -> str:
    return page(snapshot, path, now=ENDED + age, seconds_to_next=225.0)


def read(snapshot: Snapshot, *, path: str = "/metrics", age: float = 75.0) -> Document:
    return Document(html(snapshot, path=path, age=age))


# Its form


@ALL
def test_the_page_is_sound(snapshot: Snapshot) -> None:
    """Tags are balanced, no id stands twice, and whatever refers to an id finds it."""
    document = read(snapshot)
    ids = document.values("id")

    assert max(Counter(ids).values()) == 1
    for names in document.values("aria-labelledby"):
        assert set(names.split()) <= set(ids)
    assert [tag for tag, _ in document.tags].count("h1") == 1


@ALL
def test_the_page_needs_no_script_and_nothing_else(snapshot: Snapshot) -> None:
    """There is no script, no handler of events, and no reference that would load anything."""
    text, document = html(snapshot), read(snapshot)

    assert "script" not in {tag for tag, _ in document.tags}
    assert not [name for _, attributes in document.tags for name in attributes if name.startswith("on")]
    assert document.values("src") == []
    assert not re.search(r"url\(|@import|https?:", text)


@pytest.mark.parametrize("path", ["/metrics", "/a:b/metrics", "/c/d/e/"])
def test_links_are_relative(path: str) -> None:
    """All links start from the page itself, so that they work below any prefix of a proxy."""
    links = [link for link in read(FRESH, path=path).values("href") if not link.startswith(("#", "data:"))]

    assert links == [f".{path}", "./-/healthy", "./-/ready"]


def test_the_version_is_on_it() -> None:
    """The page says which version of the exporter shows it."""
    assert f"aes-exporter {__version__}." in read(FRESH).text


# Before there are figures


def test_before_the_first_run_it_says_so_and_loads_again() -> None:
    """Without a run the page says so, knows the host already, and has itself loaded again every five seconds."""
    document = read(FRESH.begun())

    assert "The first run is under way. It takes a few seconds." in document.text
    assert HOST.brand in document.text
    assert ("meta", {"http-equiv": "refresh", "content": "5"}) in document.tags


def test_with_figures_it_stays() -> None:
    """Once there are figures the page is not taken away from its reader."""
    assert "refresh" not in html(SNAPSHOT)


# The answer


def ended_with(state: State) -> Snapshot:
    """Return a daemon whose run and host are in this state, for the engine libcrypto alone."""
    no_flag = replace(HOST, flags=frozenset(("ssse3",)))
    slow = replace(measurement(SOFTWARE), cpu_flags=("ssse3",))
    found: dict[State, tuple[Host, Outcome, bool | None]] = {
        State.ACCELERATED: (HOST, measurement(HARDWARE), None),
        State.FAILED: (HOST, Failure(reason=Reason.TIMEOUT, detail="no reply within 10 s"), None),
        State.MASKED: (replace(HOST, masks=(MASK,)), measurement(HARDWARE), None),
        State.HIDDEN: (no_flag, slow, True),
        State.ABSENT: (no_flag, NotApplicable(reason=Exemption.NO_HARDWARE), False),
        State.UNUSED: (HOST, slow, None),
    }
    host, outcome, hidden = found[state]
    return replace(FRESH, host=host).begun().ended(replace(run({HARDWARE: outcome}), hidden=hidden))


@pytest.mark.parametrize("state", State)
def test_the_answer_comes_first(state: State) -> None:
    """For every state the first sentences are the answer, what it means and what to check next."""
    snapshot = ended_with(state)
    assert snapshot.run
    explanation = explain(state, "libcrypto", snapshot.run, snapshot.host)

    found = read(snapshot).text

    sentence = f"{answer(state)} {explanation.summary} What to check next: {explanation.advice}"
    assert sentence in found
    assert found.index(sentence) < 80


def test_the_engine_that_was_measured_answers() -> None:
    """Where the first engine cannot be used, the other one answers, and the first is among what was not measured."""
    unavailable = Failure(reason=Reason.ENGINE_UNAVAILABLE, detail="libcrypto.so.3 is missing")
    other = Lane(engine="cryptography", path="hardware")
    text = read(FRESH.begun().ended(run({HARDWARE: unavailable, other: measurement(other)}))).text

    assert "AES is accelerated here. This CPU's AES instructions are used by OpenSSL 4.0.3" in text
    assert (
        "libcrypto, hardware: this engine cannot be used here (engine_unavailable): libcrypto.so.3 is missing" in text
    )


def test_nothing_measured_has_no_figures() -> None:
    """Where nothing was measured there are reasons, and neither charts nor tables nor zeros."""
    document = read(FAILED)

    assert document.text.count("the worker could not be started (spawn_failed): Cannot allocate memory") == 4
    assert not {"svg", "table"} & {tag for tag, _ in document.tags}


# The figures


def test_figures_stand_side_by_side_in_the_units_people_use() -> None:
    """Each card has GB/s, CPU seconds per GB and cores per 10 Gbit/s of both paths, and how many times it is."""
    text = read(SNAPSHOT).text

    assert "OpenSSL 3.0.19 on one core, 8192 bytes per call" in text
    assert (
        "aes-128-cbc encrypt 3.68× the speed of software hardware software GB/s 1.21 0.329 "
        "CPU seconds per GB 0.827 3.04 cores per 10 Gbit/s 1.03 3.80"
    ) in text


def test_each_chart_is_told_in_words() -> None:
    """Every picture has a title and a description with its figures, and the table of all figures is named."""
    document = read(SNAPSHOT)
    pictures = [attributes for tag, attributes in document.tags if tag == "svg" and "role" in attributes]

    assert len(pictures) == 8
    assert all(len((each["aria-labelledby"] or "").split()) == 2 for each in pictures)
    assert "hardware: 0.986 GB/s at 16 bytes, 1.21 GB/s at 16384 bytes." in document.text
    assert "6.94 times at 16 bytes, 12.6 times at 64 bytes," in document.text


def test_every_figure_is_in_a_table() -> None:
    """The tables have a row of best and median for each lane, the code that ran, and a row of speed-ups."""
    text = read(SNAPSHOT).text

    for row in (
        "hardware aesni 0.986 0.967 1.15 1.12 1.19 1.17 1.21 1.18 1.21 1.19 1.21 1.19",
        "software vpaes 0.310 0.304 0.324 0.318 0.328 0.321 0.329 0.322 0.329 0.322 0.329 0.322",
        "speed-up over software 3.18× 3.53× 3.64× 3.67× 3.68× 3.68×",
        "hardware aesni 0.0828 0.0811 0.275 0.269 0.654 0.641 0.998 0.978 1.18 1.16 1.19 1.17",
    ):
        assert row in text
    assert text.count("speed-up over software") == 8


def test_what_does_not_apply_has_no_speed_up() -> None:
    """On a CPU without AES instructions there are the software figures, and why there are no others."""
    outcomes: dict[Lane, Outcome] = {
        HARDWARE: NotApplicable(reason=Exemption.NO_HARDWARE),
        SOFTWARE: measurement(SOFTWARE),
    }
    text = read(FRESH.begun().ended(run(outcomes))).text

    assert "aes-128-cbc encrypt software GB/s 0.329 CPU seconds per GB 3.04" in text
    assert "libcrypto, hardware does not apply: this CPU shows no AES instructions (no_hardware)" in text
    assert "×" not in text


# The facts


def test_the_host_is_described() -> None:
    """CPU, hypervisor, flags present and absent, libraries and kernel drivers are there."""
    text = read(SNAPSHOT).text

    assert "CPU AMD EPYC 7B13 (x86_64) Hypervisor KVM" in text
    assert "Flags present aes avx avx2 pclmulqdq sha_ni ssse3 vaes vpclmulqdq Flags absent ace ace_en avx512f" in text
    assert "libcrypto OpenSSL 3.0.19, provider default /usr/lib/x86_64-linux-gnu/libcrypto.so.3" in text
    assert "Kernel cbc(aes) cbc-aes-aesni, accelerated" in text
    assert "Kernel xts(aes) xts(ecb(aes-generic)), not accelerated" in text


def test_what_nobody_knows_is_called_unknown() -> None:
    """A host of which nothing is known has neither empty fields nor a claim about flags."""
    text = read(replace(FRESH, host=replace(HOST, brand="", flags=None, hypervisor="", kernel_drivers=()))).text

    assert "CPU unknown (x86_64) Hypervisor none seen Flags unknown Kernel drivers none seen" in text


def test_last_run_and_next_are_dated() -> None:
    """The end of the last run and when the next one is due stand there in UTC and as time spans."""
    document = read(SNAPSHOT)

    assert "Last run 2026-03-07 12:00:43 UTC , ended 75 seconds ago" in document.text
    assert "Next run 2026-03-07 12:05:43 UTC , due in 3 minutes" in document.text
    assert "2 ended, 1 of them measured nothing, 2 skipped" in document.text
    assert document.values("datetime") == ["2026-03-07T12:00:43Z", "2026-03-07T12:05:43Z"]


@pytest.mark.parametrize(("age", "old"), [(899.0, False), (901.0, True)])
def test_old_figures_are_called_old(age: float, old: bool) -> None:
    """When no run has ended for three intervals, the page says so above the figures; a minute earlier it does not."""
    assert ("All this is old. No run has ended for 15 minutes" in read(SNAPSHOT, age=age).text) == old


def test_a_wall_clock_that_was_set_back_gives_no_negative_ages() -> None:
    """If the last run lies in the future by the clock, it ended 0 seconds ago."""
    assert "ended 0 seconds ago" in read(SNAPSHOT, age=-3600.0).text


def test_failures_are_counted_and_last_success_told() -> None:
    """Failures of earlier runs stay visible with their number, and when the lane was last measured."""
    text = read(SNAPSHOT).text

    assert "libcrypto, software 1 × spawn_failed, last measured 75 seconds ago" in text
    assert "Not measured in the last run" not in text


def test_a_failure_now_says_when_it_was_last_measured() -> None:
    """A lane that failed in the last run is listed with its reason and with the age of its last figures."""
    text = read(SNAPSHOT.begun().ended(RUN_PARTLY_FAILED)).text

    assert (
        "Not measured in the last run libcrypto, software: AES instructions were masked and still in use "
        "(mask_ineffective): AES bit still set in 0xfffa320b078bffff Last measured 75 seconds ago."
    ) in text


# Text from outside


@ALL
def test_nothing_from_outside_becomes_markup(snapshot: Snapshot) -> None:
    """With an attack in every text the page consists of the same tags, and can be encoded."""
    benign = replace(snapshot, host=replace(HOST, masks=(MASK,), architecture=""))
    text = html(hostile(benign))

    text.encode()
    assert [tag for tag, _ in Document(text).tags] == [tag for tag, _ in read(benign).tags]
    assert not re.search("[\x00\x1b\u202e\udcff]", text)
    assert HOSTILE not in text
