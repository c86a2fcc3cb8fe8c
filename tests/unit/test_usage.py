"""The shape of the command line: requests, help, and the line for each wrong one."""

from __future__ import annotations

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_exporter import __version__
from aes_exporter.config import ConfigError
from aes_exporter.options import OPTIONS
from aes_exporter.usage import Request, parse


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--benchmark.round=5"], "--benchmark.round: no such flag; did you mean --benchmark.rounds?"),
        (["--web.listen-adress", ":80"], "--web.listen-adress: no such flag; did you mean --web.listen-address?"),
        (["bench", "--fromat=json"], "--fromat: no such flag; did you mean --format?"),
        (["--something-else"], "--something-else: no such flag"),
        (["-x"], "-x: no such flag"),
        (["--log.level", "debug", "bench"], "--log.level: write it after bench"),
        (["--benchmark.rounds=5", "bench", "--benchmark.rounds=6"], "--benchmark.rounds: write it after bench"),
        (["--format=json"], "--format: write it after bench"),
        (["--output=a", "bench"], "--output: write it after bench"),
        (["--web.listen-address=:80", "bench"], "--web.listen-address: not a flag of bench"),
        (["--config.check", "bench"], "--config.check: not a flag of bench"),
        (["bench", "--web.listen-address=:80"], "--web.listen-address: not a flag of bench"),
        (["bench", "--config.check"], "--config.check: not a flag of bench"),
        (["bench", "--benchmark.interval", "5m"], "--benchmark.interval: not a flag of bench"),
        (["--benchmark.rounds"], "--benchmark.rounds: requires an argument"),
        (["bench", "--format"], "--format: requires an argument"),
        (["--config.check=true"], "--config.check: does not take a value"),
        (["serve"], "'serve': no such command, there is only bench"),
        ([""], "'': no such command, there is only bench"),
        (["a\nb"], r"'a\nb': no such command, there is only bench"),
        (["bench", "now"], "Got unexpected extra argument (now)"),
    ],
)
def test_refusal(arguments: list[str], line: str) -> None:
    """Arguments of the wrong shape are refused with a line that names the flag and, if one is near, the right one."""
    with pytest.raises(ConfigError) as caught:
        parse(arguments)

    assert str(caught.value) == line


@given(st.lists(st.text()))
def test_any_arguments_are_understood_or_refused(arguments: list[str]) -> None:
    """No arguments make the parser raise anything else than its own error."""
    try:
        answer = parse(arguments)
    except ConfigError:
        return
    assert isinstance(answer, Request | str)


def test_nothing_is_a_request_to_serve() -> None:
    """Without arguments it serves, and nothing is given."""
    assert parse([]) == Request(command="serve", given={})


def test_flags_are_passed_on_as_written() -> None:
    """The texts of a flag are handed on unread, in their order; a switch counts as "true"."""
    arguments = ["--benchmark.nice", "-5", "--benchmark.path=x", "--config.check", "--benchmark.path", "y,z"]

    assert parse(arguments) == Request(
        command="serve",
        given={"--config.check": ("true",), "--benchmark.path": ("x", "y,z"), "--benchmark.nice": ("-5",)},
    )


def test_bench_takes_its_flags_behind_it() -> None:
    """What stands after bench is given to bench."""
    assert parse(["bench", "--format=csv", "--log.level", "debug"]) == Request(
        command="bench", given={"--log.level": ("debug",), "--format": ("csv",)}
    )


@pytest.mark.parametrize("arguments", [["--version"], ["bench", "--version"], ["--log.level=x", "--version"]])
def test_version(arguments: list[str]) -> None:
    """The version is told with that of Python, whatever else is asked."""
    assert parse(arguments) == f"aes-exporter {__version__} (Python {platform.python_version()})"


def help_text(*arguments: str) -> str:
    answer = parse(arguments)
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(flag: str) -> None:
    """Help comes in sections, with examples, and names bench."""
    text = help_text(flag)

    assert text.startswith("Usage: aes-exporter [flags] | aes-exporter bench [flags]\n")
    assert [line for line in text.split("\n") if line and line[0] != " "][1:] == [
        "Web:",
        "Configuration:",
        "Benchmark:",
        "Log:",
        "Other:",
    ]
    assert "aes-exporter bench --help" in " ".join(text.split())
    assert "Examples:\n    aes-exporter --web.listen-address=127.0.0.1:10739 " in text


def test_help_of_bench() -> None:
    """The help of bench has the flags of bench and none of serving."""
    text = help_text("bench", "--help")

    assert text.startswith("Usage: aes-exporter bench [flags]\n")
    assert "\nOutput:\n  --format FORMAT" in text
    assert "--web." not in text
    assert "Examples:\n    aes-exporter bench " in text


@pytest.mark.parametrize("command", ["serve", "bench"])
def test_help_is_complete(command: str) -> None:
    """Each flag stands in the help of its command with what it takes, its default and its variable, and in no other."""
    text = " ".join(help_text(*(["bench"] if command == "bench" else []), "--help").split())

    for option in OPTIONS:
        default = f"default: {option.default}; " if option.default and option.metavar else ""
        line = f"{option.flag} {option.metavar} {option.help} [{default}{option.variable}]".replace("  ", " ")
        assert (line in text) == (command in option.commands), option.flag


def test_help_fits_a_terminal() -> None:
    """No line is wider than 80 columns unless it is an example to copy."""
    lines = [*help_text("--help").split("\n"), *help_text("bench", "--help").split("\n")]

    assert [line for line in lines if len(line) > 80 and "aes-exporter " not in line] == []


@pytest.mark.parametrize("arguments", [(), ("bench",)])
def test_examples_in_the_help_work(arguments: tuple[str, ...]) -> None:
    """What the help shows as an example is understood."""
    examples = help_text(*arguments, "--help").partition("Examples:\n")[2].split("\n")

    for example in filter(None, examples):
        _, program, rest = example.partition("aes-exporter")
        assert program
        assert isinstance(parse(rest.split()), Request)
