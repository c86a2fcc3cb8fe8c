"""What others take from this process: time stolen by the hypervisor, and the CPU quota of its control groups.

Files below a root in, one Pressure at a moment out; two of them make the figures of a run. Everything is optional, what
is not known is None, and nothing raises. Knows nothing of what happens between the two moments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aes_exporter.host import files

_STEAL = 7  # the eighth figure in /proc/stat; guest time, after it, is counted in user time already
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Counters at one moment, and the CPU quota, which is in CPUs' worth of time and None without a limit.

    The ticks are those of all CPUs of this host or guest. `throttled_periods` sums up the control group and all its
    ancestors, since a quota on any of them stops this process: two that stop it in the same period count twice.
    """

    steal_ticks: int | None
    total_ticks: int | None
    throttled_periods: int | None
    quota_cpus: float | None


def read(root: Path = Path("/")) -> Pressure:
    """Return what the files below `root` tell now. Takes less than a millisecond."""
    steal, total = _parse_stat(_text(root / "proc/stat"))
    groups = list(_groups(root))
    throttled = [count for count in map(_throttled, groups) if count is not None]
    quotas = [quota for quota in map(_quota, groups) if quota is not None]
    return Pressure(
        steal_ticks=steal,
        total_ticks=total,
        throttled_periods=sum(throttled) if throttled else None,
        quota_cpus=min(quotas, default=None),
    )


def between(before: Pressure, after: Pressure) -> tuple[float | None, int | None]:
    """Return the share of all CPU time that was stolen, 0 to 1, and the throttled periods between two moments.

    A counter that went backwards, as after a migration or in another control group, tells nothing: None.
    """
    steal = _increase(before.steal_ticks, after.steal_ticks)
    total = _increase(before.total_ticks, after.total_ticks)
    ratio = steal / total if steal is not None and total and steal <= total else None
    return ratio, _increase(before.throttled_periods, after.throttled_periods)


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _text(path: Path) -> str:
    """Return what a file says; a path taken from another file may be impossible in ways that open() does not expect."""
    try:
        return files.text(path)
    except ValueError:
        return ""


def _number(text: str) -> int | None:
    """Return a counter as the kernel prints it, None for anything else, such as "max" or -1."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _parse_stat(text: str) -> tuple[int | None, int | None]:
    """Return stolen and all ticks of all CPUs together."""
    name, *figures = text.partition("\n")[0].split() or [""]
    ticks = [ticks for ticks in map(_number, figures[: _STEAL + 1]) if ticks is not None]
    return (ticks[_STEAL], sum(ticks)) if name == "cpu" and len(ticks) > _STEAL else (None, None)


# --- control groups ---------------------------------------------------------------------------------------------------


def _throttled(group: Path) -> int | None:
    """Return in how many periods a group was stopped; only a group with the CPU controller tells."""
    counts = re.findall(r"^nr_throttled ([0-9]+)$", _text(group / "cpu.stat"), re.MULTILINE)
    return _number(counts[0]) if counts else None


def _quota(group: Path) -> float | None:
    """Return the quota of a group in CPUs' worth of time, by the files of version 2 or those of version 1."""
    limit, period, *_ = [
        *_text(group / "cpu.max").split(),
        *(_text(group / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")),
    ]
    allowed, of = _number(limit), _number(period)
    return allowed / of if allowed is not None and of else None


def _groups(root: Path) -> Iterator[Path]:
    """Yield the directory of this process's control group for CPU time, then those of its ancestors, as far as seen."""
    groups = dict(_parse_groups(_text(root / "proc/self/cgroup")))
    mounts = list(_parse_mounts(_text(root / "proc/self/mountinfo")))
    for controller in ("cpu", ""):  # where version 1 has the CPU controller, the unified tree beside it has none
        seen = [(top, point) for kind, top, point in mounts if kind == controller]
        if controller in groups and seen:
            yield from _upwards(root, groups[controller], seen)
            return


def _upwards(root: Path, group: str, mounts: list[tuple[str, str]]) -> Iterator[Path]:
    """Yield directories from the group up to the top of the mount that shows it.

    In a container the path may be that of the host, or lie outside of the namespace: then the top of the mount is the
    nearest ancestor in sight.
    """
    below = [(PurePosixPath(group).relative_to(top), point) for top, point in mounts if _is_below(group, top)]
    inner, point = min(below, key=lambda each: len(each[0].parts)) if below else (PurePosixPath(), mounts[-1][1])
    yield from (root / point.lstrip("/") / each for each in (inner, *inner.parents))


def _is_below(group: str, top: str) -> bool:
    return PurePosixPath(group).is_relative_to(top) and ".." not in PurePosixPath(group).parts


def _parse_groups(text: str) -> Iterator[tuple[str, str]]:
    """Yield controller and path for each line of /proc/self/cgroup; the controller of the unified tree is ""."""
    for line in text.split("\n"):
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            yield from ((controller, path) for controller in controllers.split(","))


def _parse_mounts(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield controller ("" of the unified tree), top and mount point for each control group tree in mountinfo."""
    for line in text.split("\n"):
        mount, _, filesystem = line.partition(" - ")
        match mount.split(" "), filesystem.split(" "):
            case [_, _, _, top, point, *_], ["cgroup2", *_]:
                yield "", _unescaped(top), _unescaped(point)
            case [_, _, _, top, point, *_], ["cgroup", _, options]:
                yield from ((option, _unescaped(top), _unescaped(point)) for option in options.split(","))


def _unescaped(path: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)
