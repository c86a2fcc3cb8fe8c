"""The fleet dashboard: all hosts, from recorded series, so that it is as quick with 1000 hosts as with one."""

from __future__ import annotations

from collections.abc import Mapping

from grafana.panels import (
    BLUE,
    FLEET_UID,
    GREEN,
    ORANGE,
    RED,
    Json,
    Query,
    Row,
    bars,
    colored,
    columns,
    dashboard,
    every_one,
    host_link,
    join,
    lines,
    named,
    now,
    over_time,
    override,
    rows,
    stat,
    table,
    variable,
)
from grafana.words import STATE_COLOR, STATES, STATES_SAY, THRESHOLD, cell, high_is_bad, job, low_is_bad, state_words

JOB = 'job=~"$job"'
FLEET_ENGINE = f'{JOB}, engine="$engine"'
FLEET_CELL = f'{FLEET_ENGINE}, algorithm="$algorithm", operation="$operation"'
HOSTS = f'{JOB}, instance=~"$instance"'
ENGINE = f'{HOSTS}, engine="$engine"'
CELL = f'{ENGINE}, algorithm="$algorithm", operation="$operation"'

STATE_COLORS = [
    override(f"/{name}/", color={"mode": "fixed", "fixedColor": color}) for name, color in STATE_COLOR.items()
]
STATE_CELL = {"custom__cellOptions": {"type": "color-background", "mode": "basic"}}

# A problem: what the column is called, and the hosts that have it with a number that says how much.
UNACCELERATED = f'instance:aes_hardware_state:code{{{ENGINE}, aes_expected!="false"}} < 6'
BELOW_KIND = f"instance:aes_throughput_to_kind:min{{{ENGINE}}} < {THRESHOLD['aes_throughput_to_kind']}"
BELOW_LAST_WEEK = f"instance:aes_throughput_to_last_week:min{{{ENGINE}}} < {THRESHOLD['aes_throughput_to_last_week']}"
CONTENDED = f"instance:aes_throughput_median_share:ratio{{{HOSTS}}} < {THRESHOLD['aes_throughput_median_share']}"
STALE = f"instance:aes_run_age_intervals:ratio{{{HOSTS}}} > {THRESHOLD['aes_run_age_intervals']}"
FAILING = f"instance:aes_exporter_path_up:min{{{HOSTS}}} == 0"
DOWN = f"up{{{HOSTS}}} == 0"
FLAGS_CHANGED = f"max_over_time(instance:aes_cpu_flag:changed6h{{{HOSTS}}}[1d]) > 0"
LIBRARY_CHANGED = f"max_over_time(instance:aes_engine_info:changed6h{{{ENGINE}}}[1d]) > 0"


def number_of(problem: str) -> str:
    """Return the expression of how many hosts have a problem; the rules record it for every job, 0 included."""
    return f'sum(job_problem:aes_hosts:count{{{JOB}, problem="{problem}"}})'


def per_host(expr: str) -> Query:
    return rows(f"max by (instance) ({expr})")


def titled(titles: tuple[str, ...]) -> list[Json]:
    """Return transformations that join queries A, B, ... by host and name their columns."""
    times = [f"Time {number}" for number in range(1, len(titles) + 1)]
    letters = [f"Value #{chr(ord('A') + number)}" for number in range(len(titles))]
    return join("instance", ("Time", *times), {"instance": "instance", **dict(zip(letters, titles, strict=True))})


def at_a_glance() -> Row:
    bad = colored((GREEN, None), (RED, 1))
    odd = colored((GREEN, None), (ORANGE, 1))
    return Row(
        "",
        5,
        [
            stat(
                "Accelerated",
                'Share of hosts whose chosen engine uses AES instructions. Known exceptions (aes_expected="false") are '
                "in the denominator.",
                now(
                    f'sum(job_state:aes_hosts:count{{{FLEET_ENGINE}, state="accelerated"}})'
                    f" / sum(job_state:aes_hosts:count{{{FLEET_ENGINE}}})",
                    "accelerated",
                ),
                width=4,
                unit="percentunit",
                decimals=1,
                **low_is_bad(0.9, 0.99),
            ),
            stat(
                "Not accelerated",
                'Hosts that should use AES instructions and do not; those with aes_expected="false" are not counted. '
                "Above 0 somebody has to look: the table below names them.",
                now(number_of("not accelerated"), "hosts"),
                width=4,
                **bad,
            ),
            stat(
                "Slow for their kind",
                f"Hosts under {THRESHOLD['aes_throughput_to_kind']:.0%} of the median of hosts with the same CPU brand "
                f"and library, or under {THRESHOLD['aes_throughput_to_last_week']:.0%} of their own figure a week ago.",
                now(number_of("slow"), "hosts"),
                width=4,
                **odd,
            ),
            stat(
                "Contended",
                f"Hosts whose median is under {THRESHOLD['aes_throughput_median_share']:.0%} of their best: quota, "
                "steal or busy neighbours.",
                now(number_of("contended"), "hosts"),
                width=3,
                **odd,
            ),
            stat(
                "Stale or failing",
                "Hosts whose figures are old, or where a path cannot be measured. Nothing else here can be believed of "
                "them.",
                now(number_of("stale"), "stale"),
                now(number_of("failing"), "failing"),
                width=3,
                **bad,
            ),
            stat(
                "Down",
                "Exporters that cannot be scraped. Their hosts are in no other number.",
                now(number_of("down"), "hosts"),
                width=3,
                **bad,
            ),
            stat(
                "Hosts",
                "Exporters that answer, in the chosen jobs: what all other numbers are parts of.",
                now(f"sum(job:aes_hosts:count{{{JOB}}})", "hosts"),
                width=3,
                options={"colorMode": "none"},
                **colored((BLUE, None)),
            ),
        ],
    )


PROBLEMS = {
    "state": UNACCELERATED,
    "of its kind": BELOW_KIND,
    "of last week": BELOW_LAST_WEEK,
    "median of best": CONTENDED,
    "age": STALE,
    "failing": FAILING,
    "down": DOWN,
    "new flags": FLAGS_CHANGED,
    "new library": LIBRARY_CHANGED,
}


def trouble() -> Row:
    return Row(
        "Which hosts, and why",
        11,
        [
            table(
                "Hosts in trouble",
                "One row per host with at least one problem; a filled cell is the problem, an empty one is fine. "
                f"Click a host to open its dashboard. {STATES_SAY} Flags changed: a live migration, most often; both "
                "changes stay a day.",
                *[per_host(problem) for problem in PROBLEMS.values()],
                width=18,
                noValue="no host",
                transformations=titled(tuple(PROBLEMS)),
                sort=[{"desc": False, "displayName": "state"}],
                overrides=[
                    host_link("instance"),
                    override("instance", custom__width=170),
                    override("state", **STATE_CELL, **filled(STATES), custom__width=125),
                    override(
                        "/^of |median/", unit="percentunit", decimals=0, color=fixed(ORANGE), **STATE_CELL, **filled()
                    ),
                    override("age", decimals=1, color=fixed(RED), **STATE_CELL, **filled()),
                    override("/failing|down/", **STATE_CELL, **filled({0: ("YES", RED)})),
                    override("/new/", color=fixed(BLUE), **STATE_CELL, **filled()),
                ],
            ),
            bars(
                "Hosts by state",
                f"All hosts by state of the chosen engine. {STATES_SAY}",
                now(f"sum by (state) (job_state:aes_hosts:count{{{FLEET_ENGINE}}})", "{{state}}"),
                width=6,
                min=0,
                overrides=STATE_COLORS,
            ),
        ],
    )


def fixed(color: str) -> Json:
    return {"mode": "fixed", "fixedColor": color}


def filled(words: Mapping[int, tuple[str, str]] | None = None) -> Json:
    """Return value mappings that leave the cells of hosts without this problem empty and without a colour."""
    nothing = {
        "type": "special",
        "options": {"match": "null", "result": {"color": "transparent", "index": 99, "text": ""}},
    }
    return {"mappings": [*(named(words)["mappings"] if words else ()), nothing]}


def by_brand() -> Row:
    def spread(metric: str, measure: str) -> str:
        return f"{measure} by (brand) (job_brand:{metric}:{measure if measure != 'avg' else 'median'}{{{FLEET_CELL}}})"

    def three(metric: str) -> list[Query]:
        return [rows(spread(metric, measure)) for measure in ("min", "avg", "max")]

    names = {"brand": "brand", "Value #A": "slowest", "Value #B": "median", "Value #C": "fastest"}
    spread_of = {
        "transformations": join("brand", ("Time", "Time 1", "Time 2", "Time 3"), names),
        "overrides": [
            override("slowest", color=fixed("semi-dark-orange")),
            override("median", color=fixed("semi-dark-blue")),
            override("fastest", color=fixed("semi-dark-green")),
        ],
        "options": {"orientation": "horizontal"},
    }
    return Row(
        "Kinds of CPU: $algorithm $operation",
        11,
        [
            columns(
                "Throughput by CPU brand",
                "Slowest, median and fastest host of each CPU brand, hardware path, best block size. Wide apart means "
                "that hosts of one brand differ: clock, power profile, hypervisor or library.",
                *three("aes_throughput_bytes_per_second"),
                width=8,
                unit="Bps",
                x="brand",
                **spread_of,
            ),
            columns(
                "Speed-up by CPU brand",
                "Slowest, median and fastest speed-up over masked AES by CPU brand. Near 1 the hardware is not used; "
                "very high may be slow software, not fast hardware.",
                *three("aes_speedup_ratio"),
                width=8,
                unit="suffix:x",
                x="brand",
                decimals=1,
                **spread_of,
            ),
            table(
                "CPU brands",
                "Hosts of each brand, and how many of them are accelerated. A brand that is accelerated in part is one "
                "where hypervisor, firmware or image differ.",
                rows(f"sum by (brand) (job_brand:aes_hosts:count{{{JOB}}})"),
                rows(f'sum by (brand) (job_brand_state:aes_hosts:count{{{FLEET_ENGINE}, state="accelerated"}})'),
                width=8,
                transformations=join(
                    "brand",
                    ("Time", "Time 1", "Time 2"),
                    {"brand": "brand", "Value #A": "hosts", "Value #B": "accelerated"},
                ),
                overrides=[override("/hosts|accelerated/", custom__width=100)],
            ),
        ],
    )


def kinds() -> Row:
    return Row(
        "Slow hosts and libraries",
        10,
        [
            bars(
                "Slowest relative to their kind",
                "The 12 hosts furthest below the median of hosts with the same CPU brand and library. Red is below "
                f"{THRESHOLD['aes_throughput_to_kind']:.0%}: the alert AesThroughputBelowPeers. Kinds of less than "
                f"{THRESHOLD['aes_hosts_of_kind']:g} hosts have no median.",
                now(f"sort(bottomk(12, instance:aes_throughput_to_kind:min{{{ENGINE}}}))", "{{instance}}"),
                width=8,
                unit="percentunit",
                decimals=0,
                min=0,
                max=1.1,
                noValue="no kind has enough hosts",
                **low_is_bad(THRESHOLD["aes_throughput_to_kind"], 0.9),
            ),
            table(
                "Libraries in use",
                "Hosts by library of the chosen engine and the median throughput that it achieves. Mind that a library "
                "may be on better CPUs: compare within a brand before blaming it.",
                rows(f"sum by (library) (job_library:aes_hosts:count{{{FLEET_ENGINE}}})"),
                rows(f"avg by (library) (job_library:aes_throughput_bytes_per_second:median{{{FLEET_CELL}}})"),
                width=8,
                transformations=join(
                    "library",
                    ("Time", "Time 1", "Time 2"),
                    {"library": "library", "Value #A": "hosts", "Value #B": "median throughput"},
                ),
                overrides=[override("median throughput", unit="Bps"), override("hosts", custom__width=80)],
            ),
            lines(
                "Hosts by state over time",
                "A step shows when hosts lost AES, and how many at once: one is a migration, many are a new image or a "
                "setting rolled out.",
                over_time(f"sum by (state) (job_state:aes_hosts:count{{{FLEET_ENGINE}}})", "{{state}}"),
                width=8,
                stack=True,
                decimals=0,
                overrides=STATE_COLORS,
            ),
            lines(
                "Median throughput by CPU brand",
                "Median host of each brand, hardware path: a step down of a whole brand is a library or microcode "
                "update.",
                over_time(
                    f"avg by (brand) (job_brand:aes_throughput_bytes_per_second:median{{{FLEET_CELL}}})", "{{brand}}"
                ),
                width=12,
                unit="Bps",
            ),
            lines(
                "Hosts with a problem over time",
                "Counts of the numbers at the top. What rises together has one cause.",
                over_time(f"sum by (problem) (job_problem:aes_hosts:count{{{JOB}}})", "{{problem}}"),
                at_least=1,
                width=12,
                decimals=0,
            ),
        ],
    )


def all_hosts() -> Row:
    columns_of = {
        "state": f"instance:aes_hardware_state:code{{{ENGINE}}}",
        "throughput": f'instance_path:aes_throughput_bytes_per_second:max{{{CELL}, path="hardware"}}',
        "speed-up": f"instance:aes_speedup_ratio:median{{{CELL}}}",
        "of its kind": f"instance:aes_throughput_to_kind:min{{{ENGINE}}}",
        "median of best": f"instance:aes_throughput_median_share:ratio{{{HOSTS}}}",
        "age, intervals": f"instance:aes_run_age_intervals:ratio{{{HOSTS}}}",
    }
    kind = f"max by (instance, brand, library) (instance_kind:aes_throughput_bytes_per_second:max{{{CELL}}})"
    titles = (*columns_of, "kind")
    joined = titled(titles)
    joined[-1]["options"]["indexByName"] = {"instance": 0, "brand": 1, "library": 2}
    joined[-1]["options"]["excludeByName"][f"Value #{chr(ord('A') + len(columns_of))}"] = True
    return Row(
        "All hosts: $algorithm $operation",
        14,
        [
            table(
                "Hosts",
                "Every host: filter and sort by the column heads, click a host to open its dashboard. Brand and "
                "library are empty where the hardware path does not apply.",
                *[per_host(expr) for expr in columns_of.values()],
                rows(kind),
                width=24,
                transformations=joined,
                sort=[{"desc": False, "displayName": "state"}],
                overrides=[
                    host_link("instance"),
                    override("brand", custom__width=270),
                    override("state", **STATE_CELL, **state_words(), custom__width=130),
                    override("throughput", unit="Bps"),
                    override("speed-up", unit="suffix:x", decimals=1),
                    override(
                        "of its kind",
                        unit="percentunit",
                        decimals=0,
                        custom__cellOptions={"type": "color-text"},
                        **low_is_bad(THRESHOLD["aes_throughput_to_kind"]),
                    ),
                    override(
                        "median of best",
                        unit="percentunit",
                        decimals=0,
                        custom__cellOptions={"type": "color-text"},
                        **low_is_bad(THRESHOLD["aes_throughput_median_share"]),
                    ),
                    override(
                        "age, intervals",
                        decimals=1,
                        custom__cellOptions={"type": "color-text"},
                        **high_is_bad(THRESHOLD["aes_run_age_intervals"]),
                    ),
                ],
            )
        ],
    )


def build() -> Json:
    """Return the fleet dashboard."""
    source = "aes_exporter_build_info"
    variables = [
        job(),
        variable(
            "instance",
            "Instance",
            f'label_values({source}{{job=~"$job"}}, instance)',
            **every_one(),
        ),
        *cell(HOSTS),
    ]
    return dashboard(
        FLEET_UID,
        "AES / Fleet",
        "Which hosts lack or lost hardware AES, and why? Needs the recording rules of deploy/prometheus.",
        variables,
        [at_a_glance(), trouble(), by_brand(), kinds(), all_hosts()],
    )
