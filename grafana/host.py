"""The host dashboard: one host, from raw series, so that it works without any recording rule."""

from __future__ import annotations

from grafana.panels import (
    BLUE,
    GREEN,
    GREY,
    HOST_UID,
    ORANGE,
    RED,
    Json,
    Row,
    bars,
    colored,
    columns,
    dashboard,
    join,
    lines,
    named,
    now,
    over_time,
    override,
    rows,
    select,
    stat,
    states,
    steps,
    table,
    variable,
)
from grafana.words import BINDING, STATES_SAY, THRESHOLD, cell, high_is_bad, job, low_is_bad, state_code, state_words

HOST = 'job=~"$job", instance=~"$instance"'
ENGINE = f'{HOST}, engine="$engine"'
CELL = f'{ENGINE}, algorithm="$algorithm", operation="$operation"'
LARGE = 'block_size=~"[0-9]{4,}"'
META = ("Time", "__name__", "job", "instance", "Value")
HARDWARE, SOFTWARE = "semi-dark-green", "semi-dark-orange"
PATHS = [
    override("/hardware/", color={"mode": "fixed", "fixedColor": HARDWARE}),
    override("/software|table/", color={"mode": "fixed", "fixedColor": SOFTWARE}),
    override("/forced/", color={"mode": "fixed", "fixedColor": "semi-dark-purple"}),
]

SHORT: list[Json] = [{"id": "renameByRegex", "options": {"regex": "^aes-128-(.*)$", "renamePattern": "$1"}}]

MEDIAN_SHARE = (
    f'sum by (instance) (aes_throughput_median_bytes_per_second{{{HOST}, block_size="1024"}})'
    f' / sum by (instance) (aes_throughput_bytes_per_second{{{HOST}, block_size="1024"}})'
)


def at_a_glance() -> Row:
    encrypt, decrypt = THRESHOLD["aes_speedup_ratio:encrypt"], THRESHOLD["aes_speedup_ratio:decrypt"]
    return Row(
        "",
        6,
        [
            stat(
                "Hardware AES",
                f"Read this first: what this host does with its AES instructions, by engine. {STATES_SAY} "
                "DOWN: the exporter cannot be scraped, and all else on this page is old or empty.",
                now(state_code(HOST), "{{engine}}"),
                now(f"up{{{HOST}}} == 0", "exporter"),
                width=5,
                **state_words(**{"0": ("DOWN", RED)}),
            ),
            stat(
                "Speed-up by AES instructions",
                "How many times as fast as the same library with AES instructions masked; median over block sizes of "
                "1 KiB and more. Encryption in CBC mode gains least, as each block waits for the one before. Red is "
                f"below {encrypt:g} for encryption and {decrypt:g} for decryption: the alert AesSpeedupLow.",
                now(
                    "quantile by (algorithm, operation)"
                    f' (0.5, aes_speedup_ratio{{{ENGINE}, baseline="software", {LARGE}}})',
                    "{{algorithm}} {{operation}}",
                ),
                width=6,
                unit="suffix:x",
                decimals=1,
                transformations=SHORT,
                **low_is_bad(encrypt, 2 * encrypt),
                overrides=[override("/decrypt/", thresholds=low_is_bad(decrypt, 2 * decrypt)["thresholds"])],
            ),
            stat(
                "Median of best",
                "Median over best throughput: what the host gives now of what its CPU can do. Far under 100 % means a "
                "quota, steal or busy neighbours, not slow AES; see Contention below.",
                now(MEDIAN_SHARE, "median / best"),
                width=4,
                unit="percentunit",
                decimals=0,
                **low_is_bad(THRESHOLD["aes_throughput_median_share"], 0.9),
            ),
            stat(
                "Data age",
                "Time since the last run ended, in benchmark intervals. Above "
                f"{THRESHOLD['aes_run_age_intervals']:g} the figures on this page are old, whatever else it shows.",
                now(
                    f"(time() - aes_exporter_last_run_timestamp_seconds{{{HOST}}})"
                    f" / aes_exporter_interval_seconds{{{HOST}}}",
                    "age",
                ),
                width=3,
                unit="suffix: intervals",
                decimals=1,
                **high_is_bad(THRESHOLD["aes_run_age_intervals"]),
            ),
            table(
                "Alerts firing",
                "Alerts of this host that fire now. Empty is good, if the rules are loaded. Each has a heading of its "
                "name in docs/runbook.md.",
                rows(
                    f'max by (alertname, severity) (ALERTS{{{HOST}, alertname=~"Aes.*", alertstate="firing"}})',
                ),
                width=6,
                noValue="none",
                transformations=[
                    select(("Time", "Value"), {"alertname": "alert", "severity": "severity"}),
                ],
                overrides=[
                    override(
                        "severity",
                        custom__cellOptions={"type": "color-text"},
                        mappings=[
                            {
                                "type": "value",
                                "options": {
                                    "critical": {"color": RED, "index": 0, "text": "critical"},
                                    "warning": {"color": ORANGE, "index": 1, "text": "warning"},
                                    "info": {"color": BLUE, "index": 2, "text": "info"},
                                },
                            }
                        ],
                        custom__width=75,
                    ),
                ],
            ),
        ],
    )


def capacity() -> Row:
    best = f"max by (algorithm, operation, path) (aes_throughput_bytes_per_second{{{ENGINE}}})"
    legend = "{{algorithm}} {{operation}}, {{path}}"
    return Row(
        "Capacity planning",
        7,
        [
            bars(
                "CPU cores for 10 Gbit/s",
                "How many cores of this CPU a cipher takes to keep up with 10 Gbit/s, at its best block size. Green "
                "with AES instructions, orange without: the difference is what they save. The cipher alone; no "
                "application gains as much.",
                now(f"sort(1.25e9 / {best})", legend),
                width=12,
                unit="suffix: cores",
                decimals=2,
                min=0,
                overrides=PATHS,
                transformations=SHORT,
            ),
            bars(
                "CPU seconds per GB",
                "CPU time to encrypt or decrypt 10^9 bytes at the best block size. Multiply by the gigabytes of a day "
                "to see what it costs.",
                now(f"sort(1e9 / {best})", legend),
                width=12,
                unit="s",
                decimals=2,
                min=0,
                overrides=PATHS,
                transformations=SHORT,
            ),
        ],
    )


BY_SIZE: list[Json] = [
    {
        "id": "convertFieldType",
        "options": {"conversions": [{"targetField": "block_size", "destinationType": "number"}], "fields": {}},
    },
    {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "block_size"}]}},
]
AS_TEXT: Json = {
    "id": "convertFieldType",
    "options": {"conversions": [{"targetField": "block_size", "destinationType": "string"}], "fields": {}},
}


def by_block_size() -> Row:
    def best(path: str) -> str:
        return f'max by (block_size) (aes_throughput_bytes_per_second{{{CELL}, path="{path}"}})'

    label = "row"
    joined = (
        f'label_join(aes_throughput_bytes_per_second{{{ENGINE}}}, "{label}", " ", "algorithm", "operation", "path")'
    )
    every = f'max by ({label}, block_size) (label_replace({joined}, "{label}", "$1", "{label}", "aes-(.+)"))'
    return Row(
        "Throughput by block size",
        10,
        [
            columns(
                "Hardware beside software: $algorithm $operation",
                f"Throughput in the best slice by bytes per call, with AES instructions and masked. Small blocks show "
                f"the cost of a call. {BINDING} Cached; last run.",
                rows(best("hardware")),
                rows(best("software")),
                width=9,
                unit="Bps",
                x="block_size",
                transformations=[
                    *join("block_size", ("Time", "Time 1", "Time 2"), {}),
                    *BY_SIZE,
                    AS_TEXT,
                    select((), {"block_size": "block size", "Value #A": "hardware", "Value #B": "software"}),
                ],
                options={"xField": "block size"},
                overrides=PATHS,
            ),
            table(
                "As openssl speed prints it",
                "The classic table: bytes per second by block size, one row per algorithm, operation and path of the "
                "chosen engine. Best slices; beside openssl speed -evp the figures of libcrypto agree within a few "
                "percent.",
                rows(every),
                width=15,
                unit="Bps",
                decimals=1,
                transformations=[
                    *BY_SIZE,
                    {
                        "id": "groupingToMatrix",
                        "options": {"columnField": "block_size", "rowField": label, "valueField": "Value"},
                    },
                    select((), {f"{label}\\block_size": "bytes per call"}),
                ],
                overrides=[override("bytes per call", custom__width=205)],
            ),
        ],
    )


def over_the_time() -> Row:
    def best(suffix: str) -> str:
        return f"max by (path) (aes_throughput{suffix}_bytes_per_second{{{CELL}}})"

    chosen = 'job=~"$job", instance=~"$instance", algorithm="$algorithm", operation="$operation"'
    hardware = f'max(aes_throughput_bytes_per_second{{{chosen}, engine="libcrypto", path="hardware"}})'
    return Row(
        "Over time: $algorithm $operation",
        9,
        [
            lines(
                "Throughput, best and median",
                "At the best block size. Best is what CPU and library can do and hardly moves; a step in it is a "
                "change of library, clock or machine. Median is what the host gave: where it leaves best, somebody "
                "took the time.",
                over_time(best(""), "{{path}}, best"),
                over_time(best("_median"), "{{path}}, median"),
                width=12,
                unit="Bps",
                overrides=[
                    *PATHS,
                    override("/median/", custom__lineStyle={"fill": "dash", "dash": [6, 6]}, custom__fillOpacity=0),
                ],
            ),
            lines(
                "Cycles per byte",
                "Core cycles per byte by the clock measured in the same run: independent of the clock, so comparable "
                "between CPUs. It changes with library or silicon only. Engine libcrypto; best block size.",
                over_time(f"min by (path) (aes_cycles_per_byte{{{chosen}}})", "{{path}}"),
                width=6,
                decimals=2,
                overrides=PATHS,
            ),
            lines(
                "Share of the silicon limit",
                "Throughput over what the AES instructions of this very CPU allow, by its own round latency and "
                "throughput. Above 90 % nothing is left to gain. aes: 128-bit instructions; vaes: the wide ones, which "
                "OpenSSL does not use in these modes. Engine libcrypto.",
                over_time(
                    f"scalar({hardware}) / max by (instructions) (aes_silicon_limit_bytes_per_second{{{chosen}}})",
                    "of {{instructions}}",
                ),
                width=6,
                unit="percentunit",
                max=1,
            ),
        ],
    )


def identity() -> Row:
    return Row(
        "CPU, libraries, kernel",
        5,
        [
            table(
                "CPU",
                "Identity of the CPU as the host sees it; empty where unknown. A hypervisor may tell another one.",
                rows(f"max by (brand, architecture, family, model, stepping, hypervisor) (aes_cpu_info{{{HOST}}})"),
                width=12,
                transformations=[
                    select(
                        META,
                        {name: name for name in ("brand", "architecture", "hypervisor", "family", "model", "stepping")},
                    )
                ],
                overrides=[override("brand", custom__width=230), override("architecture", custom__width=100)],
            ),
            table(
                "Libraries measured",
                "Which library each engine really loaded. In a container it is the image's, not the host's.",
                rows(f"max by (engine, library, provider, file) (aes_engine_info{{{HOST}}})"),
                width=12,
                transformations=[
                    select(
                        META,
                        {"engine": "engine", "library": "library", "provider": "provider", "file": "file"},
                    )
                ],
                overrides=[override("/engine|library/", custom__width=125), override("provider", custom__width=80)],
            ),
        ],
    )


def the_host() -> Row:
    return Row(
        "",
        9,
        [
            states(
                "CPU flags",
                "Flags that matter for cryptography, as the host shows them. A change of colour is a change of machine "
                "or firmware: a live migration, most often. aes and, on POWER, vcrypto are the AES instructions.",
                over_time(f"max by (flag) (aes_cpu_flag{{{HOST}}})", "{{flag}}"),
                width=9,
                **named({0: ("missing", GREY), 1: ("there", GREEN)}),
            ),
            table(
                "Kernel drivers",
                "What the kernel would use for dm-crypt, IPsec and the like, by /proc/crypto: loaded algorithms only. "
                "false on a CPU with AES instructions means disks are encrypted in software.",
                rows(f"max by (algorithm, driver, accelerated) (aes_kernel_driver_info{{{HOST}}})"),
                width=7,
                noValue="none loaded",
                transformations=[select(META, {name: name for name in ("algorithm", "driver", "accelerated")})],
                overrides=[
                    override("/algorithm|accelerated/", custom__width=95),
                    override(
                        "accelerated",
                        custom__cellOptions={"type": "color-text"},
                        mappings=[
                            {
                                "type": "value",
                                "options": {
                                    "true": {"color": GREEN, "index": 0, "text": "yes"},
                                    "false": {"color": RED, "index": 1, "text": "no"},
                                },
                            }
                        ],
                    ),
                ],
            ),
            table(
                "Implementations reached",
                "Which AES code of the library ran, derived from its capability words. Software is not one "
                "implementation: it depends on mode, direction and size.",
                rows(f"max by (algorithm, operation, path, implementation) (aes_implementation_info{{{ENGINE}}})"),
                width=8,
                transformations=[
                    select(META, {name: name for name in ("algorithm", "operation", "path", "implementation")}),
                    {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "path"}]}},
                ],
            ),
        ],
    )


def contention() -> Row:
    share = THRESHOLD["aes_throughput_median_share"]
    lane = "{{engine}} {{path}}"
    return Row(
        "Contention",
        8,
        [
            lines(
                "Median of best",
                "Median over best throughput at 1 KiB. The red line is where AesHostContended begins.",
                over_time(
                    f'sum by (engine, path) (aes_throughput_median_bytes_per_second{{{HOST}, block_size="1024"}})'
                    f' / sum by (engine, path) (aes_throughput_bytes_per_second{{{HOST}, block_size="1024"}})',
                    lane,
                ),
                width=8,
                unit="percentunit",
                max=1,
                thresholds=steps((RED, None), ("transparent", share)),
                overrides=[override("/.*/", custom__thresholdsStyle={"mode": "line"})],
            ),
            lines(
                "Who took the time",
                "Waiting: share of the slices in which the worst off worker did not have the CPU. Steal: share the "
                "hypervisor took. Quiet rounds: rounds in which the core clock read steady; few mean a busy sibling "
                "thread or a moving clock, and make small blocks slow.",
                over_time(f"max by (instance) (aes_exporter_contention_ratio{{{HOST}}})", "waiting"),
                over_time(f"aes_exporter_steal_ratio{{{HOST}}}", "steal"),
                over_time(f"aes_exporter_quiet_rounds_ratio{{{HOST}}}", "quiet rounds"),
                width=8,
                unit="percentunit",
                max=1,
            ),
            lines(
                "Throttled periods",
                "Periods of the run in which a CPU quota stopped it. Anything above 0 means the quota, not the host, "
                "sets the median.",
                over_time(f"aes_exporter_throttled_periods{{{HOST}}}", "periods"),
                at_least=1,
                width=4,
                decimals=0,
            ),
            lines(
                "Core clock",
                "Clock of the core during the run, measured with a chain of dependent additions, not read from the "
                "system. A lower clock lowers every throughput alike.",
                over_time(f"aes_core_frequency_hertz{{{HOST}}}", "clock"),
                width=4,
                unit="hertz",
            ),
        ],
    )


def exporter() -> Row:
    return Row(
        "Health of the exporter",
        7,
        [
            stat(
                "Paths",
                "1 if the engine was measured on that path in the last run. A path that does not apply is not here.",
                now(f"aes_exporter_path_up{{{HOST}}}", "{{engine}} {{path}}"),
                width=6,
                **named({0: ("failing", RED), 1: ("measured", GREEN)}),
            ),
            bars(
                "Since the last success",
                "Time since each engine and path was last measured. All alike and short is good; one that grows is "
                "failing.",
                now(
                    f"time() - aes_exporter_last_success_timestamp_seconds{{{HOST}}}",
                    "{{engine}} {{path}}",
                ),
                width=6,
                unit="s",
                min=0,
                decimals=0,
                color={"mode": "fixed", "fixedColor": BLUE},
            ),
            lines(
                "Failures an hour, by reason",
                "Runs of the last hour in which an engine could not be measured on a path. The reason says where "
                "to look, see docs/runbook.md; the log has the detail.",
                over_time(f"sum by (reason) (increase(aes_exporter_failures_total{{{HOST}}}[1h]))", "{{reason}}"),
                at_least=1,
                width=6,
            ),
            lines(
                "Runs an hour",
                "Runs that ended, that measured nothing, and that were due and did not take place. Skipped means that "
                "a run takes longer than the interval, or the host slept.",
                over_time(f"increase(aes_exporter_runs_total{{{HOST}}}[1h])", "ended"),
                over_time(f"increase(aes_exporter_runs_failed_total{{{HOST}}}[1h])", "failed"),
                over_time(f"increase(aes_exporter_runs_skipped_total{{{HOST}}}[1h])", "skipped"),
                at_least=1,
                width=6,
            ),
            lines(
                "CPU cost",
                "What measuring takes, as a share of one core, workers included; and what serving takes.",
                over_time(f"rate(aes_exporter_run_cpu_seconds_total{{{HOST}}}[1h])", "runs"),
                over_time(f"rate(process_cpu_seconds_total{{{HOST}}}[1h])", "daemon"),
                at_least=0.02,
                width=5,
                unit="percentunit",
                decimals=2,
            ),
            lines(
                "Duration of a run",
                "Time from the start to the end of a run, beside the interval: it has to stay well under it.",
                over_time(f"aes_exporter_run_duration_seconds{{{HOST}}}", "run"),
                over_time(f"aes_exporter_interval_seconds{{{HOST}}}", "interval"),
                width=5,
                unit="s",
            ),
            lines(
                "Memory",
                "Resident memory of the daemon; the workers live during a run only and are not in it.",
                over_time(f"process_resident_memory_bytes{{{HOST}}}", "resident"),
                width=4,
                unit="bytes",
            ),
            stat(
                "Last run",
                "Rounds are the slices behind each figure; the CPU is the one that the run was pinned to, if it was. "
                "Running: 1 while a run is under way.",
                now(f"aes_exporter_rounds{{{HOST}}}", "rounds"),
                now(f"aes_exporter_run_cpu{{{HOST}}}", "CPU"),
                now(f"aes_exporter_run_in_progress{{{HOST}}}", "running"),
                width=5,
                options={"colorMode": "none"},
                **colored((BLUE, None)),
            ),
            table(
                "Version",
                "Version of the exporter and of its Python, and since when it runs.",
                rows(f"max by (version, python_version) (aes_exporter_build_info{{{HOST}}})"),
                rows(f"1000 * max by (instance) (process_start_time_seconds{{{HOST}}})"),
                width=5,
                transformations=[
                    {"id": "merge", "options": {}},
                    select(
                        ("Time", "Value #A", "instance"),
                        {"version": "version", "python_version": "Python", "Value #B": "started"},
                    ),
                ],
                overrides=[override("started", unit="dateTimeFromNow"), override("/version|Python/", custom__width=62)],
            ),
        ],
    )


def build() -> Json:
    """Return the host dashboard."""
    variables = [
        job(),
        variable(
            "instance",
            "Instance",
            'label_values(aes_exporter_build_info{job=~"$job"}, instance)',
        ),
        *cell(HOST),
    ]
    return dashboard(
        HOST_UID,
        "AES / Host",
        "Is AES fast on this host, and if not, why? From raw series; works without the recording rules.",
        variables,
        [at_a_glance(), capacity(), by_block_size(), over_the_time(), identity(), the_host(), contention(), exporter()],
    )
