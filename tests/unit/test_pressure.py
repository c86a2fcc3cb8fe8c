"""Steal, throttling and quota, from files of every layout of control groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aes_exporter.host.pressure import Pressure, between, read

STAT = "cpu  100 5 20 800 10 1 4 60 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
UNIFIED = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
VERSION_1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
NOTHING = Pressure(steal_ticks=None, total_ticks=None, throttled_periods=None, quota_cpus=None)


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def v2(group: str, *, throttled: int | None = None, limit: str | None = None) -> dict[str, str]:
    """Return the files of a group of version 2; the root has no cpu.max, one without the controller no nr_throttled."""
    stat = "usage_usec 9\nuser_usec 9\nsystem_usec 0\n"
    if throttled is not None:
        stat += f"nr_periods 50\nnr_throttled {throttled}\nthrottled_usec 77\n"
    files = {f"sys/fs/cgroup{group}/cpu.stat": stat}
    return files if limit is None else {**files, f"sys/fs/cgroup{group}/cpu.max": f"{limit}\n"}


def v1(group: str, *, throttled: int, quota: int = -1, mount: str = "sys/fs/cgroup/cpu,cpuacct") -> dict[str, str]:
    return {
        f"{mount}{group}/cpu.stat": f"nr_periods 50\nnr_throttled {throttled}\nthrottled_time 77\n",
        f"{mount}{group}/cpu.cfs_quota_us": f"{quota}\n",
        f"{mount}{group}/cpu.cfs_period_us": "100000\n",
    }


def proc(cgroup: str, mountinfo: str) -> dict[str, str]:
    return {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo}


# --- read -------------------------------------------------------------------------------------------------------------


def test_without_files_nothing_is_known(tmp_path: Path) -> None:
    """What cannot be read is unknown, not zero."""
    assert read(tmp_path) == NOTHING


@pytest.mark.parametrize(
    ("stat", "steal", "total"),
    [
        (STAT, 60, 1000),
        ("cpu  1 2 3 4 5 6 7 0\n", 0, 28),
        ("cpu  1 2 3 4 5 6 7\n", None, None),
        ("cpu  1 2 x 4 5 6 7 8 9 10\n", None, None),
        ("cpu0 1 2 3 4 5 6 7 8 9 10\n", None, None),
        ("", None, None),
        ("\n", None, None),
    ],
)
def test_steal_is_the_eighth_figure_of_the_first_line(
    tmp_path: Path, stat: str, steal: int | None, total: int | None
) -> None:
    """All ticks are the first eight, since guest time is part of user time; kernels that print fewer do not tell."""
    assert read(tree(tmp_path, {"proc/stat": stat})) == replace(NOTHING, steal_ticks=steal, total_ticks=total)


GROUPS = {
    "version 2": (
        {
            **proc("0::/system.slice/aes.service\n", UNIFIED),
            **v2(""),
            **v2("/system.slice", throttled=2, limit="max 100000"),
            **v2("/system.slice/aes.service", throttled=40, limit="20000 100000"),
        },
        42,
        0.2,
    ),
    "a parent with the tighter quota": (
        {
            **proc("0::/pod/container\n", UNIFIED),
            **v2("/pod", throttled=5, limit="50000 100000"),
            **v2("/pod/container", throttled=1, limit="150000 100000"),
        },
        6,
        0.5,
    ),
    "the controller only in an ancestor": (
        {**proc("0::/a/b\n", UNIFIED), **v2("/a", throttled=3, limit="max 100000"), **v2("/a/b")},
        3,
        None,
    ),
    "no controller anywhere": ({**proc("0::/a\n", UNIFIED), **v2(""), **v2("/a")}, None, None),
    "version 1": (
        {
            **proc("5:cpu,cpuacct:/docker/x\n4:memory:/docker/y\n", VERSION_1),
            **v1("", throttled=0),
            **v1("/docker", throttled=0),
            **v1("/docker/x", throttled=9, quota=250000),
        },
        9,
        2.5,
    ),
    "hybrid: version 1 has the controller": (
        {
            **proc("5:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/b\n", UNIFIED + VERSION_1),
            **v1("/a", throttled=9, quota=30000),
            **v2("/b", throttled=99, limit="10000 100000"),
        },
        9,
        0.3,
    ),
    "hybrid: the unified tree has the controller": (
        {
            **proc("4:memory:/a\n0::/b\n", UNIFIED),
            **v2("/b", throttled=99, limit="10000 100000"),
        },
        99,
        0.1,
    ),
    "a controller that is listed, but not mounted": (
        {**proc("5:cpu:/a\n0::/b\n", UNIFIED), **v2("/b", throttled=7, limit="10000 100000")},
        7,
        0.1,
    ),
    "a container that sees its own group as the top": (
        {
            **proc("5:cpu,cpuacct:/docker/x\n", VERSION_1.replace(" / ", " /docker/x ")),
            **v1("", throttled=8, quota=50000),
        },
        8,
        0.5,
    ),
    "a container's child group": (
        {
            **proc("5:cpu,cpuacct:/docker/x/child\n", VERSION_1.replace(" / ", " /docker/x ")),
            **v1("", throttled=8, quota=50000),
            **v1("/child", throttled=1, quota=20000),
        },
        9,
        0.2,
    ),
    "a name space": ({**proc("0::/\n", UNIFIED), **v2("", throttled=8, limit="50000 100000")}, 8, 0.5),
    "a path outside of the name space": (
        {**proc("0::/../other\n", UNIFIED), **v2("", throttled=8, limit="50000 100000")},
        8,
        0.5,
    ),
    "a mount whose top is outside of the name space": (
        {**proc("0::/\n", UNIFIED.replace(" / ", " /../.. ")), **v2("", throttled=8, limit="50000 100000")},
        8,
        0.5,
    ),
    "the host's path under a mount that does not show it": (
        {**proc("0::/kubepods/pod1/c1\n", UNIFIED), **v2("", throttled=8, limit="50000 100000")},
        8,
        0.5,
    ),
    "another container's mount": (
        {**proc("0::/a\n", UNIFIED.replace(" / ", " /b ")), **v2("", throttled=8, limit="50000 100000")},
        8,
        0.5,
    ),
    "a mount that shows more of the path than another": (
        {
            **proc("0::/a/b\n", UNIFIED + UNIFIED.replace(" / /sys/fs/cgroup", r" /a /mnt/its\040own")),
            **v2("/a/b", throttled=1),
            "mnt/its own/b/cpu.stat": "nr_throttled 6\n",
        },
        6,
        None,
    ),
    "figures that are none": (
        {
            **proc("0::/a\n", UNIFIED),
            "sys/fs/cgroup/a/cpu.stat": "nr_throttled many\n",
            "sys/fs/cgroup/a/cpu.max": "20000 0\n",
        },
        None,
        None,
    ),
    "half a file": ({**proc("0::/a\n", UNIFIED), "sys/fs/cgroup/a/cpu.max": "20000"}, None, None),
    "no mounts known": ({**proc("0::/a\n", ""), **v2("/a", throttled=1, limit="1 1")}, None, None),
    "no groups known": ({**proc("", UNIFIED), **v2("", throttled=1, limit="1 1")}, None, None),
}


@pytest.mark.parametrize(("files", "throttled", "quota"), GROUPS.values(), ids=GROUPS.keys())
def test_quota_and_throttling_come_from_every_group_up_to_the_top(
    tmp_path: Path, files: Mapping[str, str], throttled: int | None, quota: float | None
) -> None:
    """Throttled periods of the group and its ancestors add up, and the tightest quota counts, in every layout."""
    assert read(tree(tmp_path, files)) == replace(NOTHING, throttled_periods=throttled, quota_cpus=quota)


def test_this_host_can_be_read() -> None:
    """The real files give counters that do not run backwards."""
    before, after = read(), read()

    assert before.total_ticks is None or (after.total_ticks or 0) >= before.total_ticks
    assert before.quota_cpus is None or before.quota_cpus > 0


# --- between ----------------------------------------------------------------------------------------------------------


def at(steal: int | None, total: int | None, throttled: int | None) -> Pressure:
    return Pressure(steal_ticks=steal, total_ticks=total, throttled_periods=throttled, quota_cpus=None)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (at(10, 1000, 3), at(35, 1100, 7), (0.25, 4)),
        (at(10, 1000, 3), at(10, 1100, 3), (0.0, 0)),
        (at(10, 1000, 3), at(110, 1100, 3), (1.0, 0)),
        (at(10, 1000, 3), at(10, 1000, 3), (None, 0)),  # less than a tick
        (at(10, 1000, 3), at(9, 1100, 2), (None, None)),
        (at(10, 1000, 3), at(20, 900, 4), (None, 1)),
        (at(10, 1000, 3), at(120, 1100, 4), (None, 1)),
        (at(None, None, None), at(10, 1000, 3), (None, None)),
        (at(10, 1000, 3), at(None, None, None), (None, None)),
    ],
)
def test_a_run_is_what_lies_between(
    before: Pressure, after: Pressure, expected: tuple[float | None, int | None]
) -> None:
    """Steal is a share of all CPU time in the run; counters that are missing or went backwards tell nothing."""
    assert between(before, after) == expected


COUNTS = st.one_of(st.none(), st.integers(0, 1000))
PRESSURES = st.builds(at, COUNTS, COUNTS, COUNTS)


@given(PRESSURES, PRESSURES)
def test_a_ratio_is_one(before: Pressure, after: Pressure) -> None:
    """Whatever the counters, the share of steal is unknown or from 0 to 1, and no count is negative."""
    ratio, throttled = between(before, after)

    assert ratio is None or 0 <= ratio <= 1
    assert throttled is None or throttled >= 0


# --- fuzz -------------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "cpu",
        "0::",
        "5:cpu:",
        "/",
        "/a",
        "/../b",
        ",",
        ":",
        " - ",
        "cgroup2 x rw",
        "cgroup x rw,cpu",
        r"\040",
        r"\777",
        "1 2 3:4 / /sys/fs/cgroup",
        "nr_throttled ",
        "99",
        "max",
        "-1",
        " ",
        "\n",
        "\x00",
        "ü",
        "9" * 30,
    ]
)
TEXTS = st.one_of(st.text(max_size=100), st.lists(PIECES, max_size=20).map("".join))
NAMES = (
    "proc/stat",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "sys/fs/cgroup/cpu.stat",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu.cfs_quota_us",
    "sys/fs/cgroup/cpu.cfs_period_us",
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, TEXTS)))
def test_no_text_raises(tmp_path: Path, files: dict[str, str]) -> None:
    """Whatever the files say, the figures are unknown or not negative."""
    found = read(tree(tmp_path, {name: text.encode(errors="replace").decode() for name, text in files.items()}))

    figures = (found.steal_ticks, found.total_ticks, found.throttled_periods, found.quota_cpus)
    assert all(figure is None or figure >= 0 for figure in figures)


@given(TEXTS, TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_group_and_no_mount_raises(tmp_path: Path, group: str, mount: str) -> None:
    """Paths that cannot exist are paths where nothing is known."""
    cgroup, mountinfo = (text.encode(errors="replace").decode() for text in (f"0::{group}\n", UNIFIED + mount))

    assert read(tree(tmp_path, proc(cgroup, mountinfo))) == NOTHING
