"""The table of options: every flag with its default, its rule and its help; the environment variable follows from it.

The configuration, the command line and its help are made from this table, which knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from aes_exporter import notation
from aes_exporter.model import BLOCK_SIZES, ENGINES, PATHS
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS

Command = Literal["serve", "bench"]

PREFIX = "AES_EXPORTER_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A flag and its environment variable. `default` is written as a user would; without `metavar` it is a switch.

    `parse` takes the text of one value and raises ValueError or OSError where it is refused.
    """

    flag: str
    parse: Callable[[str], Any]
    help: str
    default: str | None = None
    metavar: str = ""
    repeatable: bool = False
    commands: tuple[Command, ...] = ("serve", "bench")

    @property
    def variable(self) -> str:
        return PREFIX + self.flag.removeprefix("--").upper().replace(".", "_").replace("-", "_")


def _joined(values: Iterable[object]) -> str:
    return ",".join(str(value) for value in values)


OPTIONS = (
    Option(
        flag="--web.listen-address",
        metavar="HOST:PORT",
        default=":10739",
        parse=notation.address,
        repeatable=True,
        commands=("serve",),
        help="Where to listen: host:port, :port for every address, [::1]:port for IPv6; port 0 picks a free one.",
    ),
    Option(
        flag="--web.telemetry-path",
        metavar="PATH",
        default="/metrics",
        parse=notation.telemetry_path,
        commands=("serve",),
        help="Where the metrics are.",
    ),
    Option(
        flag="--web.config.file",
        metavar="FILE",
        parse=notation.file,
        commands=("serve",),
        help="Web config, as all official exporters have it: TLS, passwords, headers. Read again when it changes.",
    ),
    Option(
        flag="--web.open-health",
        default="false",
        parse=notation.switch,
        commands=("serve",),
        help="Let probes see /-/healthy and /-/ready without a password.",
    ),
    Option(
        flag="--web.max-connections",
        metavar="COUNT",
        default="128",
        parse=notation.whole(1, 65536),
        commands=("serve",),
        help="Most connections at a time; fewer where this process may open too few files.",
    ),
    Option(
        flag="--config.check",
        default="false",
        parse=notation.switch,
        commands=("serve",),
        help="Check all flags, environment variables and the web config, then end.",
    ),
    Option(
        flag="--benchmark.interval",
        metavar="DURATION",
        default="5m",
        parse=notation.duration("1s", "1y"),
        commands=("serve",),
        help="From the start of a run to the start of the next, at least 1.5 times what a run takes.",
    ),
    Option(
        flag="--benchmark.timeout",
        metavar="DURATION",
        default="2m",
        parse=notation.duration("1s", "1y"),
        commands=("serve",),
        help="When a run ends at the latest; what was measured in at least 5 complete rounds is published.",
    ),
    Option(
        flag="--benchmark.pause",
        metavar="DURATION",
        default="500ms",
        parse=notation.duration("0s", "1h"),
        commands=("serve",),
        help="Pause between rounds, to spread the load; the first run is made without.",
    ),
    Option(
        flag="--benchmark.algorithm",
        metavar="NAME",
        default=_joined(ALGORITHMS),
        parse=notation.one_of(*ALGORITHMS),
        repeatable=True,
        help="Algorithms to measure.",
    ),
    Option(
        flag="--benchmark.operation",
        metavar="NAME",
        default=_joined(OPERATIONS),
        parse=notation.one_of(*OPERATIONS),
        repeatable=True,
        help="Operations to measure.",
    ),
    Option(
        flag="--benchmark.block-size",
        metavar="BYTES",
        default=_joined(BLOCK_SIZES),
        parse=notation.whole(16, 65536, step=16),
        repeatable=True,
        help="Bytes per library call, multiples of 16 from 16 to 65536, at most 64 of them.",
    ),
    Option(
        flag="--benchmark.engine",
        metavar="NAME",
        default=_joined(ENGINES),
        parse=notation.one_of(*ENGINES),
        repeatable=True,
        help="Libraries to measure: libcrypto is the system's, cryptography what Python programs use.",
    ),
    Option(
        flag="--benchmark.path",
        metavar="NAME",
        default="hardware,software",
        parse=notation.one_of(*PATHS),
        repeatable=True,
        help="hardware is the host as it is, software has the AES instructions masked, table SSSE3 too; forced "
        "applies where AES instructions are hidden.",
    ),
    Option(
        flag="--benchmark.rounds",
        metavar="COUNT",
        default="80",
        parse=notation.whole(5, 100_000),
        help="Rounds of a run, in each of which everything is timed once; at least 5.",
    ),
    Option(
        flag="--benchmark.slice",
        metavar="DURATION",
        default="250us",
        parse=notation.duration("100us", "3ms"),
        help="How long one timing takes, from 100us to 3ms.",
    ),
    Option(
        flag="--benchmark.nice",
        metavar="NICENESS",
        default="0",
        parse=notation.whole(-20, 19),
        help="Niceness of the measuring processes, from -20 to 19; a high one spoils the figures on a busy host.",
    ),
    Option(
        flag="--benchmark.cpu",
        metavar="NUMBER",
        parse=notation.whole(0, 8191),
        help="CPU to measure on; without, the one where the first measuring process starts.",
    ),
    Option(
        flag="--benchmark.libcrypto",
        metavar="FILE",
        parse=notation.library,
        help="Library of the engine libcrypto; without, the newest libcrypto that the loader finds.",
    ),
    Option(
        flag="--log.level",
        metavar="LEVEL",
        default="info",
        parse=notation.one_of("debug", "info", "warn", "error"),
        help="Least level to log: debug, info, warn or error.",
    ),
    Option(
        flag="--log.format",
        metavar="FORMAT",
        default="logfmt",
        parse=notation.one_of("logfmt", "json"),
        help="Format of the log: logfmt or json.",
    ),
    Option(
        flag="--format",
        metavar="FORMAT",
        default="table",
        parse=notation.one_of("table", "json", "csv", "prometheus"),
        commands=("bench",),
        help="table for people; json, csv; prometheus for node_exporter's textfile directory.",
    ),
    Option(
        flag="--output",
        metavar="FILE",
        parse=notation.output,
        commands=("bench",),
        help="File to write, replaced in one step; without, standard output.",
    ),
)
