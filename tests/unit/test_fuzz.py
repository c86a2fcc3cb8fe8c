"""Texts that nobody meant to write: every parser of what comes from outside takes them or raises its named error."""

from __future__ import annotations

import io
import json
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge

from aes_exporter import capabilities, config, notation
from aes_exporter.capabilities import ARCHITECTURES
from aes_exporter.config import Config, ConfigError
from aes_exporter.options import OPTIONS, PREFIX, Command
from aes_exporter.server import application
from aes_exporter.worker import messages
from aes_exporter.worker.__main__ import Channel
from aes_exporter.worker.engines.libcrypto import library_name
from aes_exporter.worker.mapped import mapped_file, mapped_library
from aes_exporter.worker.messages import MessageError
from tests.integration.test_server import ask
from tests.unit.test_messages import SETUP

NS = {"y": 31_536_000e9, "w": 604_800e9, "d": 86_400e9, "h": 3600e9, "m": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3}
DIGITS = st.text("0123456789", max_size=11) | st.text("-+._٣² ", max_size=2)
UNITS = st.sampled_from([*NS, "", "ns", "S", "min"])
DURATIONS = st.lists(st.tuples(DIGITS, UNITS), max_size=4)


@given(DURATIONS)
def test_durations(parts: list[tuple[str, str]]) -> None:
    """A duration is the sum of its parts and within its bounds, or it is refused."""
    text = "".join(map("".join, parts))
    with suppress(ValueError):
        value = notation.duration("1ms", "365d")(text)

        assert 1_000_000 <= value <= 365 * 86400 * 1_000_000_000
        assert value == sum(int(digits) * NS[unit] for digits, unit in re.findall("([0-9]+)([a-z]+)", text))


@given(st.text("[]:.%0123456789abcdefGxyz-_/ \n٣", max_size=30) | st.from_regex(r"\[?[0-9a-f:.]{0,20}\]?:[0-9]{1,6}"))
def test_addresses(text: str) -> None:
    """An address that is taken has a port that exists and is read back from the way it is shown, or it is refused."""
    with suppress(ValueError):
        address = notation.address(text)

        assert 0 <= address.port <= 65535
        assert notation.address(str(address)) == address


@given(st.text("/.-~%mé \n?#", max_size=20))
def test_telemetry_paths(text: str) -> None:
    """A path that is taken is one that no client and no server reads as another."""
    with suppress(ValueError):
        path = notation.telemetry_path(text)

        assert path == text
        assert os.path.normpath(path) == path.rstrip("/") != ""
        assert not path.startswith("/-/")


NAMES = st.sampled_from([option.variable for option in OPTIONS if option.flag != "--output"])
VARIABLES = st.dictionaries(
    NAMES | st.text(st.characters(exclude_characters="\0=")).map(PREFIX.__add__),
    st.binary(max_size=30).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
    | st.lists(st.sampled_from(["16", "64", "hardware", "libcrypto", "1s", ":0", "[::1]:1", "true", "-1", " "])).map(
        ",".join
    ),
    max_size=5,
)


@pytest.mark.parametrize("command", ["serve", "bench"])
@given(environ=VARIABLES)
@settings(max_examples=300)
def test_environments(command: Command, environ: dict[str, str]) -> None:
    """Any environment makes a configuration with printable warnings, or one printable line that names what is wrong."""
    try:
        found = config.load(command, {}, environ)
    except ConfigError as error:
        line = str(error)
        assert line.isprintable()
        assert line.startswith((PREFIX, "--benchmark.interval: "))
    else:
        assert isinstance(found, Config)
        assert all(warning.isprintable() for warning in found.warnings)


WORDS = st.lists(
    st.sampled_from(["0x0", "0xffffffffffffffff", "0x10000000000000000", "~0x1", "", "0x", "xyz"]), max_size=12
)
LINES = st.one_of(
    st.none(),
    st.text(max_size=60),
    st.tuples(st.sampled_from(["CPUINFO: ", "", "x"]), st.sampled_from(capabilities.VARIABLES), WORDS).map(
        lambda parts: f"{parts[0]}{parts[1]}={':'.join(parts[2])}"
    ),
)


@given(LINES, st.sampled_from([*ARCHITECTURES, "made-up"]))
def test_capability_words(line: str | None, machine: str) -> None:
    """Words that are read fit 64 bits each and show only flags of the closed list; all else is no words."""
    words = capabilities.parse_words(line)
    if words is not None:
        assert 1 <= len(words) <= 10
        assert all(0 <= word < 1 << 64 for word in words)
        assert capabilities.flags_of(words, machine) <= {
            flag for each in ARCHITECTURES.values() for flag in each.flags if machine in ARCHITECTURES
        }
        assert capabilities.has_aes(words, machine) in (True, False)


@given(st.text(max_size=80))
def test_library_names(version: str) -> None:
    """Whatever a library says of itself, its name is at most two words."""
    assert len(library_name(version).split()) <= 2


@given(st.data())
def test_requests_with_damage(data: st.DataObject) -> None:
    """A request with a piece replaced, cut out or doubled is understood by the worker or a MessageError."""
    line = data.draw(
        st.sampled_from([messages.encode(SETUP), messages.encode(messages.Turn(first=3, step=1, chains=("clock",)))])
    )
    begin = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(begin, len(line)))
    damaged = line[:begin] + data.draw(st.binary(max_size=20) | st.just(line)) + line[end:]
    channel = Channel(io.BytesIO(damaged), io.BytesIO())

    while received := channel.receive():
        with suppress(MessageError):
            messages.setup(received)
        with suppress(MessageError):
            messages.turn(received, cells=8, chains=("clock", "aes"))


@given(
    st.dictionaries(
        st.sampled_from(["first", "step", "chains"]), st.integers() | st.lists(st.text(max_size=5)) | st.floats()
    )
)
def test_turns(fields: dict[str, object]) -> None:
    """A turn that is taken starts with a cell that there is and asks for chains that there are."""
    with suppress(MessageError):
        turn = messages.turn(json.dumps(fields).encode(), cells=8, chains=("clock",))

        assert 0 <= turn.first < 8
        assert set(turn.chains) <= {"clock"}


MAPS = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.tuples(st.sampled_from(["10-20", "-", "zz-10", "10", "10-"]), st.sampled_from([" r-xp 0 0:0 1 /lib/x", " "]))
        .map("".join)
        .map(str.encode)
    ).map(b"\n".join),
)


@given(MAPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_maps(tmp_path: Path, maps: bytes) -> None:
    """Whatever stands in /proc/self/maps, a file is named there or nowhere."""
    (tmp_path / "maps").write_bytes(maps)
    text = maps.decode(errors="replace")

    assert mapped_file(0x10, str(tmp_path / "maps")) in text
    assert mapped_library("x", str(tmp_path / "maps")) in text


REGISTRY = CollectorRegistry()
Gauge("fuzzed", "A gauge.", registry=REGISTRY).set(1)
APP = application(
    registry=REGISTRY, telemetry_path="/metrics", healthy=lambda: True, ready=lambda: True, page=lambda: "page"
)
LATIN = st.text(st.characters(max_codepoint=255), max_size=40)
ACCEPT = LATIN | st.lists(
    st.sampled_from(
        ["application/openmetrics-text", "text/plain", "*/*", ";", "version=1.0.0", "version=", "q=0.5", "q=x", ",",
         "escaping=allow-utf-8", "escaping=", "="]
    )
).map("".join)  # fmt: skip
CODINGS = LATIN | st.lists(st.sampled_from(["gzip", ";", "q=0", "q=1", "q=", ",", " ", "identity", "*"])).map("".join)
QUERIES = LATIN | st.lists(st.sampled_from(["name[]=fuzzed", "&", "name[]", "=", "%", "%ff", "name[]=x"])).map("".join)


@given(ACCEPT, CODINGS, QUERIES)
async def test_headers_and_queries(accept: str, codings: str, query: str) -> None:
    """Whatever a client accepts and asks for by name, it gets an exposition."""
    answer = await ask(APP, "/metrics", query=query, accept=accept, accept_encoding=codings)

    assert answer.status == 200
    assert "text" in answer.headers["content-type"]
