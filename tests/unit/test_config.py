"""Flags and environment variables: what is understood, what is refused, and the line that says so."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_exporter.config import Address, Config, ConfigError, affordable_connections, load
from aes_exporter.model import BLOCK_SIZES, Lane
from aes_exporter.options import OPTIONS, Command
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell

COUNTS = {"--benchmark.rounds": "5 to 100000", "--web.max-connections": "1 to 65536", "--benchmark.cpu": "0 to 8191"}
DURATIONS = {"--benchmark.interval": "1s to 1y", "--benchmark.timeout": "1s to 1y", "--benchmark.pause": "0s to 1h"}

# flag, text, what was expected
REFUSALS = [
    *((flag, text, f"a whole number from {span}") for flag, span in COUNTS.items() for text in ("", "x", "-1", "1e3")),
    *((flag, "9" * 5000, f"a whole number from {span}") for flag, span in COUNTS.items()),
    ("--benchmark.rounds", "4", "a whole number from 5 to 100000"),
    ("--benchmark.rounds", "100001", "a whole number from 5 to 100000"),
    ("--benchmark.rounds", " 80", "a whole number from 5 to 100000"),
    ("--benchmark.rounds", "٨٠", "a whole number from 5 to 100000"),
    ("--benchmark.rounds", "8_0", "a whole number from 5 to 100000"),
    ("--benchmark.nice", "-21", "a whole number from -20 to 19"),
    ("--benchmark.nice", "20", "a whole number from -20 to 19"),
    ("--web.max-connections", "0", "a whole number from 1 to 65536"),
    *((flag, text, f"a duration with its unit, from {span}") for flag, span in DURATIONS.items() for text in ("", "5")),
    ("--benchmark.interval", "0", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.interval", "999ms", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.interval", "366d", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.interval", "30m1h", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.interval", "1.5h", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.interval", "-5m", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.interval", "5M", "a duration with its unit, from 1s to 1y"),
    ("--benchmark.pause", "61m", "a duration with its unit, from 0s to 1h"),
    ("--benchmark.slice", "99us", "a duration with its unit, from 100us to 3ms"),
    ("--benchmark.slice", "3001us", "a duration with its unit, from 100us to 3ms"),
    *(("--benchmark.block-size", text, "a multiple of 16 from 16 to 65536") for text in ("0", "24", "65552", "1k", "")),
    ("--benchmark.algorithm", "aes-256-cbc", "aes-128-cbc or aes-128-ecb"),
    ("--benchmark.operation", "sign", "encrypt or decrypt"),
    ("--benchmark.engine", "openssl", "libcrypto or cryptography"),
    ("--benchmark.path", "tables", "hardware, software, table or forced"),
    ("--benchmark.path", "", "hardware, software, table or forced"),
    ("--benchmark.libcrypto", "", "a name such as libcrypto.so.3 or a path"),
    ("--benchmark.libcrypto", "lib\ncrypto.so", "a name such as libcrypto.so.3 or a path"),
    ("--benchmark.libcrypto", "lib\udcffcrypto.so", "a name such as libcrypto.so.3 or a path"),
    ("--config.check", "yes", "true or false"),
    ("--web.open-health", "yes", "true or false"),
    ("--web.config.file", "", "the path of a file"),
    ("--web.config.file", "web\n.yml", "the path of a file"),
    ("--log.level", "INFO", "debug, info, warn or error"),
    ("--log.format", "text", "logfmt or json"),
    *(
        ("--web.listen-address", text, "host:port, :port or [IPv6 address]:port")
        for text in ("", "10739", "::1:80", ":", ":65536", ":-1", ":٣", "*:1", "a b:1", "[zz]:1", "[1.2.3.4]:1", "[]:1")
    ),
    *(
        ("--web.telemetry-path", text, "a path such as /metrics in plain ASCII, neither / nor under /-/")
        for text in ("", "/", "metrics", "/-/", "/-/x", "//x", "/a//b", "/a/..", "/./a", "/a b", "/a\t", "/é")
    ),
    *(
        ("--web.telemetry-path", text, "a path such as /metrics in plain ASCII, neither / nor under /-/")
        for text in ("/a?b", "/a#b", "/a%20b", "/{a}", "/a\x00", "/a\u202eb", "/a\\b", '/"')
    ),
]


def load_one(flag: str, text: str, *, command: Command = "serve") -> Config:
    return load(command, {flag: [text]}, {})


def refusal(flags: Mapping[str, list[str]], environ: Mapping[str, str], command: Command = "serve") -> str:
    """Return the line with which a configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        load(command, flags, environ)
    return str(caught.value)


def shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


@pytest.mark.parametrize(("flag", "text", "expected"), REFUSALS)
def test_refusal(flag: str, text: str, expected: str) -> None:
    """A value that breaks its option's rule is refused with a line that says what was expected and what came."""
    line = refusal({flag: [text]}, {})

    assert line == f"{flag}: expected {expected}, got {shortened(text)!r}"
    assert line.isprintable()


@pytest.mark.parametrize("command", ["serve", "bench"])
@given(flag=st.sampled_from([option.flag for option in OPTIONS if option.flag != "--output"]), text=st.text())
@settings(max_examples=300)
def test_any_text_is_taken_or_refused_in_one_line(command: Command, flag: str, text: str) -> None:
    """Whatever text a flag is given, it is understood or refused with one printable line that names an option."""
    line = "--"
    try:
        load_one(flag, text, command=command)
    except ConfigError as error:
        line = str(error)

    assert line.startswith("--")
    assert line.isprintable()


def test_defaults() -> None:
    """Without flags and variables it serves on port 10739 and measures all that is known every five minutes."""
    config = load("serve", {}, {})

    assert config.listen == (Address(host="", port=10739),)
    assert (config.telemetry_path, config.max_connections, config.check) == ("/metrics", 128, False)
    assert (config.web_config, config.open_health) == (None, False)
    assert (config.interval_seconds, config.plan.budget_seconds, config.plan.pause_seconds) == (300.0, 120.0, 0.5)
    assert (config.log_level, config.log_format, config.warnings) == ("info", "logfmt", ())
    assert (config.plan.rounds, config.plan.slice_ns, config.plan.nice) == (80, 250_000, 0)
    assert (config.plan.cpu, config.plan.libcrypto) == (None, None)
    assert (config.format, config.output) == ("table", None)


def test_lanes_are_ordered() -> None:
    """libcrypto comes before cryptography and hardware before software, whatever order was asked for."""
    flags = {"--benchmark.engine": ["cryptography", "libcrypto"], "--benchmark.path": ["software,hardware"]}

    assert [str(lane) for lane in load("serve", flags, {}).plan.lanes] == [
        "libcrypto/hardware",
        "libcrypto/software",
        "cryptography/hardware",
        "cryptography/software",
    ]


def test_cells_are_all_combinations() -> None:
    """The cells are every algorithm with every operation and every block size, each size once and ascending."""
    config = load_one("--benchmark.block-size", "1024,16,1024")

    assert config.plan.cells == tuple(
        Cell(algorithm=algorithm, operation=operation, block_size=size)
        for algorithm in ALGORITHMS
        for operation in OPERATIONS
        for size in (16, 1024)
    )


def test_lists_are_repeated_flags_or_commas() -> None:
    """A list may be given by repeating its flag, by commas, by both, and with blanks after the commas."""
    config = load("serve", {"--web.listen-address": ["127.0.0.1:1, [::1]:2", ":0"]}, {})

    assert [str(address) for address in config.listen] == ["127.0.0.1:1", "[::1]:2", ":0"]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":0", "", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("host-1.example:80", "host-1.example", 80),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        ("[::ffff:1.2.3.4]:80", "::ffff:1.2.3.4", 80),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    """An address is a host or nothing, a colon and a port; IPv6 stands in brackets. It is shown as it is written."""
    address = load_one("--web.listen-address", text).listen[0]

    assert address == Address(host=host, port=port)
    assert str(address) == text


@pytest.mark.parametrize("text", ["/m", "/metrics/", "/-", "/a/-/b", "/.metrics", "/a.b_c~d-e", "/a:b@c,d;e=f"])
def test_telemetry_paths(text: str) -> None:
    """A path of plain characters is taken as it is."""
    assert load_one("--web.telemetry-path", text).telemetry_path == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400.0), ("90s", 90.0), ("2m2s3ms", 122.003), ("1d", 86400.0), ("52w", 31449600.0), ("1y", 31536000.0)],
)
def test_durations(text: str, seconds: float) -> None:
    """Durations are written as Prometheus writes them."""
    assert load_one("--benchmark.interval", text).interval_seconds == seconds


@pytest.mark.parametrize(("text", "nanoseconds"), [("100us", 100_000), ("3ms", 3_000_000), ("1ms500us", 1_500_000)])
def test_slices(text: str, nanoseconds: int) -> None:
    """A slice may be as short as 100 microseconds and as long as 3 milliseconds."""
    flags = {"--benchmark.slice": [text], "--benchmark.interval": ["1h"]}

    assert load("serve", flags, {}).plan.slice_ns == nanoseconds


def test_a_pause_may_be_nothing() -> None:
    """A bare 0 is a duration."""
    assert load_one("--benchmark.pause", "0").plan.pause_seconds == 0.0


def test_the_budget_is_the_shorter_of_timeout_and_interval() -> None:
    """A run never gets longer than the time to the next."""
    assert load_one("--benchmark.interval", "70s").plan.budget_seconds == 70.0
    assert load_one("--benchmark.timeout", "60s").plan.budget_seconds == 60.0


def test_bench_measures_at_once() -> None:
    """The bench makes no pauses and has time for all rounds on a host ten times too slow."""
    plan = load("bench", {}, {}).plan

    assert plan.pause_seconds == 0.0
    assert plan.budget_seconds == 60 + 10 * plan.seconds()


def test_a_scalar_is_given_once() -> None:
    """A flag that is no list is not to be repeated: which one was meant?"""
    assert refusal({"--benchmark.rounds": ["5", "6"]}, {}) == "--benchmark.rounds: expected once, got 2 times"


def test_too_many_block_sizes() -> None:
    """At most 64 block sizes are measured; what is named twice counts once."""
    sizes = [str(16 * number) for number in range(1, 65)]
    flags = {"--benchmark.block-size": [*sizes, *sizes], "--benchmark.interval": ["1h"]}

    assert len(load("serve", flags, {}).plan.cells) == 64 * 4
    flags["--benchmark.block-size"].append("65536")
    assert refusal(flags, {}) == "--benchmark.block-size: expected at most 64 sizes, got 65"


def test_flags_win_over_the_environment() -> None:
    """Where a flag is given, its variable is not even looked at."""
    environ = {"AES_EXPORTER_BENCHMARK_ROUNDS": "nonsense", "AES_EXPORTER_BENCHMARK_NICE": "7"}

    plan = load("serve", {"--benchmark.rounds": ["6"]}, environ).plan

    assert (plan.rounds, plan.nice) == (6, 7)


def test_the_environment_has_lists() -> None:
    """A list in the environment is comma separated."""
    environ = {"AES_EXPORTER_BENCHMARK_ENGINE": "libcrypto", "AES_EXPORTER_BENCHMARK_PATH": "hardware,software"}

    assert load("serve", {}, environ).plan.lanes == (
        Lane(engine="libcrypto", path="hardware"),
        Lane(engine="libcrypto", path="software"),
    )


def test_an_empty_variable_is_unset() -> None:
    """A variable that is set to nothing leaves the default."""
    assert load("serve", {}, {option.variable: "" for option in OPTIONS}) == load("serve", {}, {})


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        (
            "AES_EXPORTER_BENCHMARK_BLOCK_SIZE",
            "16,64,",
            "AES_EXPORTER_BENCHMARK_BLOCK_SIZE: expected a multiple of 16 from 16 to 65536, got ''",
        ),
        (
            "AES_EXPORTER_WEB_MAX_CONNECTIONS",
            "1\r\n",
            r"AES_EXPORTER_WEB_MAX_CONNECTIONS: expected a whole number from 1 to 65536, got '1\r\n'",
        ),
        (
            "AES_EXPORTER_LOG_LEVEL",
            "\x1b[31m\x9b\u2028\u202e\udcff",
            r"AES_EXPORTER_LOG_LEVEL: expected debug, info, warn or error, got '\x1b[31m\x9b\u2028\u202e\udcff'",
        ),
    ],
)
def test_a_refusal_names_the_variable(variable: str, text: str, line: str) -> None:
    """What was wrong in the environment is called by the variable's name, on one line whatever the value."""
    assert refusal({}, {variable: text}) == line


def test_a_switch_in_the_environment() -> None:
    """A switch is true or false in the environment."""
    assert load("serve", {}, {"AES_EXPORTER_CONFIG_CHECK": "true"}).check
    assert not load("serve", {}, {"AES_EXPORTER_CONFIG_CHECK": "false"}).check


def test_unknown_variables_are_warned_of() -> None:
    """A variable with our prefix that means nothing is no error, but said; a slip of the pen gets a suggestion."""
    environ = {"AES_EXPORTER_BENCHMARK_ROUND": "5", "AES_EXPORTER_A\n": "1", "AES_EXPORTER_EMPTY": "", "OTHER": "1"}

    assert load("serve", {}, environ).warnings == (
        r"unknown environment variable 'AES_EXPORTER_A\n'",
        "unknown environment variable 'AES_EXPORTER_BENCHMARK_ROUND'; did you mean AES_EXPORTER_BENCHMARK_ROUNDS?",
    )


@pytest.mark.parametrize(
    "name",
    ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_10739_TCP", "PORT_10739_TCP_ADDR"],
)
def test_variables_of_kubernetes_are_ignored(name: str) -> None:
    """What Kubernetes injects for a Service named aes-exporter is not worth a word."""
    assert load("serve", {}, {f"AES_EXPORTER_{name}": "tcp://10.0.0.1:10739"}).warnings == ()


def test_each_command_reads_its_own_options() -> None:
    """One environment may serve both commands: options of the other one are neither used nor checked."""
    environ = {"AES_EXPORTER_WEB_LISTEN_ADDRESS": "nonsense", "AES_EXPORTER_BENCHMARK_INTERVAL": "1s"}

    assert load("bench", {}, environ) == load("bench", {}, {})
    assert load("serve", {}, {"AES_EXPORTER_FORMAT": "nonsense"}) == load("serve", {}, {})


def test_an_interval_must_hold_a_run() -> None:
    """An interval below 1.5 times what a run takes is refused, with both numbers and what to change."""
    assert refusal({"--benchmark.interval": ["1m"]}, {}) == (
        "--benchmark.interval: expected at least 63s, 1.5 times the 42s of a run, got '1m'; "
        "or lower --benchmark.rounds, --benchmark.pause or --benchmark.slice"
    )
    assert load("serve", {"--benchmark.interval": ["63s"]}, {}).interval_seconds == 63.0


def test_an_interval_is_refused_where_it_was_set() -> None:
    """The line names the variable where the interval came from there, and the default where nothing was said."""
    environ = {"AES_EXPORTER_BENCHMARK_INTERVAL": "6m", "AES_EXPORTER_BENCHMARK_ROUNDS": "800"}

    assert refusal({}, environ).startswith("AES_EXPORTER_BENCHMARK_INTERVAL: expected at least 629s, ")
    assert ", got '5m'; or lower " in refusal({"--benchmark.rounds": ["800"]}, {})


def test_a_short_timeout_is_warned_of() -> None:
    """A timeout that cuts rounds off is allowed, but said."""
    assert load("serve", {"--benchmark.timeout": ["10s"]}, {}).warnings == (
        "--benchmark.timeout: 10s ends a run before its 80 rounds, which take 42s",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "Is a directory"),
        ("missing/file", "No such file or directory"),
        ("file/file", "Not a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_output_is_refused_before_measuring(tmp_path: Path, name: str, reason: str) -> None:
    """A file that cannot be written is found out at once, not after the measuring."""
    (tmp_path / "file").touch()
    path = f"{tmp_path}/{name}"

    assert refusal({"--output": [path]}, {}, "bench") == f"--output: {shortened(path)!r}: {reason}"


def test_output_into_a_folder_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without write permission is refused by the name of the variable that asked for it."""

    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)

    assert refusal({}, {"AES_EXPORTER_OUTPUT": f"{tmp_path}/a"}, "bench") == (
        f"AES_EXPORTER_OUTPUT: '{tmp_path}/a': Permission denied"
    )


@pytest.mark.parametrize("name", ["file", "new", "link", "link to nothing"])
def test_output_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """The check of a file that can be written changes nothing in its folder."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "link to nothing").symlink_to("other")
    before = sorted(tmp_path.iterdir())

    assert load("bench", {"--output": [str(tmp_path / name)]}, {}).output == tmp_path / name
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text() == "old"


def test_output_may_be_no_file_at_all() -> None:
    """A device is taken as it is, and a dash is standard output."""
    assert load("bench", {"--output": ["/dev/null"]}, {}).output == Path("/dev/null")
    assert load("bench", {"--output": ["-"]}, {}).output is None


@pytest.mark.parametrize(
    ("asked", "open_files", "connections"),
    [(128, 1024, 128), (128, 192, 128), (128, 191, 127), (128, 64, 1), (128, 3, 1), (128, -1, 128), (40000, 1024, 960)],
)
def test_connections_fit_into_the_open_files(asked: int, open_files: int, connections: int) -> None:
    """Connections leave files for all else, however few that makes of them; a limit below zero is none."""
    assert affordable_connections(asked, open_files) == connections


def test_variables_are_named_after_flags() -> None:
    """A flag's variable is the prefix and the flag in upper case with underscores, and no two are the same."""
    variables = {option.flag: option.variable for option in OPTIONS}

    assert variables["--web.listen-address"] == "AES_EXPORTER_WEB_LISTEN_ADDRESS"
    assert variables["--format"] == "AES_EXPORTER_FORMAT"
    assert len(set(variables.values())) == len(OPTIONS)


def test_block_sizes_by_default() -> None:
    """The default block sizes are those of the model."""
    assert {cell.block_size for cell in load("serve", {}, {}).plan.cells} == set(BLOCK_SIZES)


def test_open_health_without_a_web_config() -> None:
    """Opening what is open anyway is worth a warning, since a password was probably meant to be there."""
    assert load("serve", {"--web.open-health": ["true"]}, {}).warnings == (
        "--web.open-health: has no effect without --web.config.file",
    )
    assert load("serve", {"--web.open-health": ["true"], "--web.config.file": ["web.yml"]}, {}).warnings == ()
