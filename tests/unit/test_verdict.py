"""What a run makes of a worker's words and slices."""

from __future__ import annotations

import pytest

from aes_exporter import verdict
from aes_exporter.model import Exemption, Failure, Figure, Host, Lane, Measurement, NotApplicable, Outcome
from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker.messages import Slice

HARDWARE = Lane(engine="libcrypto", path="hardware")
SOFTWARE = Lane(engine="libcrypto", path="software")
FORCED = Lane(engine="libcrypto", path="forced")
WITH_AES, WITHOUT_AES = (1 << 57,), (0,)


def host(*flags: str) -> Host:
    return Host(architecture="x86_64", flags=frozenset(flags))


@pytest.mark.parametrize(
    ("lane", "words", "flags", "objection"),
    [
        (HARDWARE, WITH_AES, ("aes",), None),
        (HARDWARE, WITHOUT_AES, ("aes",), NotApplicable(reason=Exemption.NO_HARDWARE)),
        (HARDWARE, None, ("aes",), None),
        (HARDWARE, None, (), NotApplicable(reason=Exemption.NO_HARDWARE)),
        (SOFTWARE, WITHOUT_AES, ("aes",), None),
        (FORCED, WITH_AES, (), None),
        (
            FORCED,
            WITHOUT_AES,
            (),
            Failure(
                reason=Reason.MASK_INEFFECTIVE,
                detail="the library does not show the AES instructions set for it: 0x0",
            ),
        ),
        (SOFTWARE, None, ("aes",), None),
        (
            SOFTWARE,
            WITH_AES,
            ("aes",),
            Failure(
                reason=Reason.MASK_INEFFECTIVE,
                detail="the library still shows AES instructions under the mask: 0x200000000000000",
            ),
        ),
    ],
)
def test_words_admit_a_lane_or_say_why_not(
    lane: Lane, words: tuple[int, ...] | None, flags: tuple[str, ...], objection: Outcome | None
) -> None:
    """A lane is measured only if its library's words, as far as they can be read, are what its path asks for."""
    assert verdict.admission(lane, words, host(*flags)) == objection


def test_best_and_median_are_per_cell() -> None:
    """The mean of the shortest eighth of a cell's slices is its best, and the middle one its median."""
    cells = [Cell(algorithm="aes-128-ecb", operation="encrypt", block_size=size) for size in (16, 1024)]
    rounds = [
        (Slice(calls=10, wall_ns=int(1000 * wall), cpu_ns=0), Slice(calls=2, wall_ns=int(500 * wall), cpu_ns=0))
        for wall in (4, 0.6, 1, 8, 2, 2, 1, 9, 0.4)
    ]

    assert verdict.figures(cells, rounds) == (
        Figure(cell=cells[0], best=320e6, median=80e6),
        Figure(cell=cells[1], best=8192e6, median=2048e6),
    )


def figure_of(*slices: tuple[int, ...]) -> tuple[float, float]:
    """Best and median of 16-byte slices in units of 16 MB/s; a slice is the timings of its one call, in nanoseconds."""
    cell = Cell(algorithm="aes-128-ecb", operation="encrypt", block_size=16)
    rounds = [(Slice(calls=len(timings) // 2, wall_ns=10**6, cpu_ns=0, timings=timings),) for timings in slices]
    (figure,) = verdict.figures([cell], rounds)
    return figure.best / 16e6, figure.median / 16e6


QUIET = (5000, 100, 5000)


def test_the_best_is_that_of_undisturbed_parts() -> None:
    """Parts beside a busy sibling thread do not count for the best, not even faster ones, but for the median."""
    doubtful, busy = (5100, 125, 5000), ((5000, 80, 5101), (5101, 80, 5000), (9000, 250, 9000))

    assert figure_of(*[QUIET] * 7, doubtful, *busy) == (10.0, 10.0)
    assert figure_of(*[QUIET] * 8, *[(9000, 250, 9000)] * 9) == (10.0, 4.0)


def test_each_part_has_the_probes_around_it() -> None:
    """Of a slice that a neighbour disturbed in its middle, the parts before and behind that count for the best."""
    disturbed = (5000, 110, 5000, 50, 7000, 300, 5000, 90, 5000)

    assert figure_of(*[disturbed] * 7) == pytest.approx((1000 / 90, 4000 / 550))


def test_all_parts_count_where_hardly_any_is_undisturbed() -> None:
    """Seven undisturbed parts are chance, and without probes nothing is known: then all of them are looked at."""
    assert figure_of(*[QUIET] * 7, *[(6000, 80, 6000)] * 3) == (12.5, 10.0)
    assert figure_of(*[(0, 100, 0)] * 8, *[(0, 80, 0)] * 3) == (12.5, 10.0)


def test_the_very_fastest_is_luck() -> None:
    """The best is the mean of the fastest eighth, to which one much faster part gives an eighth of what it has."""
    assert figure_of(*[QUIET] * 63, (5000, 60, 5000)) == pytest.approx((1000 / 95, 10.0))


def test_a_best_is_never_below_its_median() -> None:
    """Where most slices were disturbed and faster for it, the median is what the host gave at the least."""
    assert figure_of(*[QUIET] * 8, *[(6000, 80, 6000)] * 9) == (12.5, 12.5)


def measured(*throughputs: tuple[int, float]) -> Measurement:
    figures = tuple(
        Figure(cell=Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=size), best=best, median=best)
        for size, best in throughputs
    )
    return Measurement(library=Library(name="BoringSSL"), cpu_flags=(), figures=figures)


@pytest.mark.parametrize(
    ("hardware", "detail"),
    [
        (measured((16, 1.0), (1024, 1.6), (8192, 1.6)), None),
        (
            measured((16, 9.0), (1024, 1.4), (8192, 1.4)),
            "the hardware path is only 1.40 times as fast at 1024 bytes and more",
        ),
        (measured((16, 9.0), (1024, 1.0), (8192, 9.0), (16384, 9.0)), None),
        (measured((16, 9.0)), "which was not measured"),
        (Failure(reason=Reason.CRASH, detail=""), "which was not measured"),
        (NotApplicable(reason=Exemption.NO_HARDWARE), None),
        (None, "which was not measured"),
    ],
)
def test_a_mask_that_words_cannot_prove_is_proven_by_its_ratio(hardware: Outcome | None, detail: str | None) -> None:
    """Without words, hardware must be 1.5 times masked software in the median cell of 1024 bytes and more."""
    masked = measured((16, 1.0), (1024, 1.0), (8192, 1.0), (16384, 1.0))
    outcomes: dict[Lane, Outcome] = {SOFTWARE: masked, **({HARDWARE: hardware} if hardware else {})}

    failure = verdict.unmasked(SOFTWARE, masked, outcomes, None, proven=False)

    if detail is None:
        assert failure is None
    else:
        assert failure is not None
        assert failure.reason is Reason.MASK_INEFFECTIVE
        assert failure.detail.endswith(detail)
