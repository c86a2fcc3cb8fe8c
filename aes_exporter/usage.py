"""The shape of the command line: arguments -> the command with the texts of its flags, or the text that was asked for.

In: arguments, and the table of options, from which flags and help are made. Out: a Request, a text, or a ConfigError of
one line. What a value means is config.py's business, and nothing is printed here.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import click

from aes_exporter import __version__
from aes_exporter.config import ConfigError
from aes_exporter.options import OPTIONS, Command, Option

PROGRAM = "aes-exporter"

_VERSION = f"{PROGRAM} {__version__} (Python {platform.python_version()})"
_SECTIONS = {"web": "Web", "config": "Configuration", "benchmark": "Benchmark", "log": "Log", "": "Output"}
_RULES = """Every flag is an environment variable too, the one in brackets; flags win. Lists are comma separated, and
their flags can be repeated. Durations are written as 1h30m, 90s, 500ms or 250us."""
_HELP = f"""Keep measuring how fast AES runs on this host, with and without its AES instructions, and serve the figures
to Prometheus. To measure once and print the figures: aes-exporter bench, see aes-exporter bench --help.

{_RULES}"""
_EXAMPLES = """\b
Examples:
  aes-exporter --web.listen-address=127.0.0.1:10739 --benchmark.interval=15m
  AES_EXPORTER_BENCHMARK_BLOCK_SIZE=16,1024,8192 aes-exporter --log.format=json"""
_BENCH_HELP = f"""Measure once how fast AES runs on this host, with and without its AES instructions, and print the
figures. The exit code is 3 if something that applies to this host could not be measured.

{_RULES}"""
_BENCH_EXAMPLES = """\b
Examples:
  aes-exporter bench --benchmark.engine=libcrypto --benchmark.block-size=16,8192
  aes-exporter bench --format=prometheus --output=/var/lib/node_exporter/aes.prom"""

# What to say of a flag that stands before bench, or after it and is not for it.
_PLACES = {
    option.flag: "write it after bench" if "bench" in option.commands else "not a flag of bench" for option in OPTIONS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to do, and the texts `given` by flag."""

    command: Command
    given: Mapping[str, Sequence[str]]


class _Answer(Exception):  # noqa: N818  no error: the way out of click with a text
    """What `--help` or `--version` asked for."""


def parse(arguments: Sequence[str]) -> Request | str:
    """Return what the arguments ask for: a Request, or the text to print and be done. Raises ConfigError."""
    program = _program()
    try:
        with program.make_context(PROGRAM, [*arguments]) as context:
            request: Request = program.invoke(context)
            return request
    except _Answer as answer:
        return str(answer)
    except click.NoSuchOption as error:
        raise ConfigError(f"{error.option_name}: {_why_unknown(error)}") from error
    except click.BadOptionUsage as error:
        what = error.message.removeprefix(f"Option {error.option_name!r} ").rstrip(".")
        raise ConfigError(f"{error.option_name}: {what}") from error
    except click.ClickException as error:
        raise ConfigError(error.message.rstrip(".")) from error


def _why_unknown(error: click.NoSuchOption) -> str:
    near = "".join(f"; did you mean {flag}?" for flag in (error.possibilities or ())[:1])
    return _PLACES.get(error.option_name, f"no such flag{near}")


class _Command(click.Command):
    """A command whose help has one section for each group of flags."""

    def format_options(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in OPTIONS if self.name in option.commands]
        for group, members in groupby(options, key=_group):
            with formatter.section(_SECTIONS[group]):
                formatter.write_dl([(f"{option.flag} {option.metavar}", _described(option)) for option in members])
        with formatter.section("Other"):
            formatter.write_dl([("--version", "Print the version."), ("-h, --help", "Print this help.")])


class _Group(_Command, click.Group):
    def get_command(self, context: click.Context, name: str) -> click.Command:
        command = super().get_command(context, name)
        if command is None:
            context.fail(f"{name!r}: no such command, there is only bench")
        return command


def _program() -> click.Group:
    return _Group(
        "serve",
        commands=[_Command("bench", epilog=_BENCH_EXAMPLES, help=_BENCH_HELP, **_common("bench"))],
        epilog=_EXAMPLES,
        help=_HELP,
        invoke_without_command=True,
        subcommand_metavar=f"| {PROGRAM} bench [flags]",
        **_common("serve"),
    )


def _common(command: Command) -> dict[str, Any]:
    return {
        "add_help_option": False,
        "callback": click.pass_context(_requested),
        "context_settings": {"max_content_width": 100},
        "options_metavar": "[flags]",
        "params": [
            *_flags(command),
            _answering("--version", get=lambda _: _VERSION),
            _answering("-h", "--help", get=click.Context.get_help),
        ],
    }


def _flags(command: Command) -> Iterator[click.Option]:
    for option in OPTIONS:
        if command in option.commands:
            kind: dict[str, Any] = {"multiple": True} if option.metavar else {"count": True}
            yield click.Option([option.flag, option.variable.lower()], **kind)


def _answering(*names: str, get: Callable[[click.Context], str]) -> click.Option:
    def answer(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            raise _Answer(get(context))

    return click.Option(names, callback=answer, expose_value=False, is_eager=True, is_flag=True)


def _requested(context: click.Context, **values: Any) -> Request:
    given = {option.flag: _texts(values[name]) for option in OPTIONS if values.get(name := option.variable.lower())}
    if context.invoked_subcommand and given:
        flag = next(iter(given))
        raise ConfigError(f"{flag}: {_PLACES[flag]}")
    return Request(command="bench" if context.info_name == "bench" else "serve", given=given)


def _texts(value: tuple[str, ...] | int) -> tuple[str, ...]:
    return ("true",) * value if isinstance(value, int) else value


def _group(option: Option) -> str:
    group, dot, _ = option.flag.removeprefix("--").partition(".")
    return group if dot else ""


def _described(option: Option) -> str:
    default = f"default: {option.default}; " if option.metavar and option.default else ""
    return f"{option.help} [{default}{option.variable}]"
