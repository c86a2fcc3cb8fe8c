"""The lines between daemon and worker: everything goes over whole, and nothing else is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker import messages
from aes_exporter.worker.messages import Hello, Message, MessageError, Ready, Refusal, Setup, Slice, Slices, Turn

CELL = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=16)
SETUP = Setup(version="1.2.3", engine="libcrypto", libcrypto=None, cells=(CELL,), slice_ns=250_000, nice=-5, cpu=3)
READY = Ready(
    library=Library(name="OpenSSL 3.0.19", file="/lib/ä"), capabilities="", cpu=None, notes=("no",), chains=("clock",)
)
ONE = Slice(calls=2, wall_ns=9, cpu_ns=0, timings=(3, 1, 0, 1, 3))
SLICES = Slices(slices=(ONE,), chains=(ONE,))


def turn(line: bytes) -> Turn:
    return messages.turn(line, cells=8, chains=("clock", "cbc"))


def slices(line: bytes) -> Slices | Refusal:
    return messages.slices(line, cells=1, chains=1)


DECODERS: list[Callable[[bytes], Message]] = [messages.hello, messages.setup, messages.ready, turn, slices]


@pytest.mark.parametrize(
    ("message", "decode"),
    [
        (Hello(version="1"), messages.hello),
        (SETUP, messages.setup),
        (READY, messages.ready),
        (Refusal(reason=Reason.WRONG_ANSWER, detail="x"), messages.ready),
        (Refusal(reason=Reason.WRONG_ANSWER, detail="x"), slices),
        (Turn(first=7, step=1), turn),
        (Turn(first=0, step=3, chains=("cbc", "clock")), turn),
        (SLICES, slices),
    ],
)
def test_a_message_comes_back_as_it_was_sent(message: Message, decode: Callable[[bytes], Message]) -> None:
    """What one side encodes on one line the other side decodes to the same record."""
    line = messages.encode(message)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


def altered(message: Message, **changes: Any) -> bytes:
    fields = json.loads(messages.encode(message))
    return json.dumps({**fields, **changes}).encode()


@pytest.mark.parametrize(
    ("line", "decode", "complaint"),
    [
        (b"", messages.hello, "not a JSON object: ''"),
        (b"\xff\x00garbage", messages.hello, r"not a JSON object: '\ufffd\x00garbage'"),
        (b"[1]", messages.hello, "not a JSON object: '[1]'"),
        (b"[" * 100_000, messages.hello, "not a JSON object: '" + "[" * 60 + "'"),
        (b'{"version":1}', messages.hello, "no text of at most 4096 characters in version"),
        (altered(SETUP, cells=3), messages.setup, "no list in cells"),
        (altered(SETUP, cells=[3]), messages.setup, "no object in cells"),
        (altered(SETUP, nice=1.0), messages.setup, "no whole number of at least -20 in nice"),
        (altered(SETUP, cpu=True), messages.setup, "no whole number of at least 0 in cpu"),
        (
            altered(SETUP, cells=[{"algorithm": "rot13", "operation": "encrypt", "block_size": 16}]),
            messages.setup,
            "an unknown Cell(algorithm='rot13', operation='encrypt', block_size=16)",
        ),
        (altered(READY, library=None), messages.ready, "no object in library"),
        (altered(READY, capabilities="x" * 5000), messages.ready, "no text of at most 4096 characters in capabilities"),
        (b'{"reason":"tired","detail":""}', messages.ready, "an unknown reason tired"),
        (b'{"first":8}', turn, "no cell 8 among 8"),
        (b'{"first":-1}', turn, "no whole number of at least 0 in first"),
        (b'{"first":0}', turn, "no whole number of at least 1 in step"),
        (b'{"first":0,"step":6}', turn, "steps of 6 miss some of 8 cells"),
        (b'{"first":0,"step":1}', turn, "no list in chains"),
        (b'{"first":0,"step":1,"chains":["abacus"]}', turn, "no chain abacus on this CPU"),
        (b'{"slices":[]}', slices, "0 slices where 1 were asked for"),
        (altered(SLICES, chains=[]), slices, "0 chains where 1 were asked for"),
        (altered(SLICES, slices=[{"calls": 1}]), slices, "a slice that is not a few whole numbers"),
        (altered(SLICES, slices=[[1, 1]]), slices, "a slice that is not a few whole numbers"),
        (altered(SLICES, slices=[[1] * 13]), slices, "a slice that is not a few whole numbers"),
        (altered(SLICES, slices=[[1, True, 0]]), slices, "a slice that is not a few whole numbers"),
        (altered(SLICES, slices=[[1, 0, 0]]), slices, "an impossible slice [1, 0, 0]"),
        (altered(SLICES, slices=[[0, 1, 0]]), slices, "an impossible slice [0, 1, 0]"),
        (altered(SLICES, slices=[[1, 1, -1]]), slices, "an impossible slice [1, 1, -1]"),
        (altered(SLICES, slices=[[1, 1, 0, 0, 1, -1]]), slices, "an impossible slice [1, 1, 0, 0, 1, -1]"),
        (altered(SLICES, slices=[[1, 1, 0, 0, 0, 0]]), slices, "an impossible slice [1, 1, 0, 0, 0, 0]"),
        (altered(SLICES, slices=[[2, 1, 0, 0, 1, 0]]), slices, "3 timings of 2 calls"),
        (altered(SLICES, slices=[[1, 1, 0, 0, 1]]), slices, "2 timings of 1 calls"),
        (altered(SLICES, slices=[[9, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1]]), slices, "8 timings of 9 calls"),
    ],
)
def test_anything_else_is_refused_in_words(line: bytes, decode: Callable[[bytes], Message], complaint: str) -> None:
    """A line of another shape is a MessageError that says what is wrong with it."""
    with pytest.raises(MessageError) as refusal:
        decode(line)

    assert str(refusal.value) == complaint


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
fields = st.dictionaries(
    st.sampled_from(["version", "engine", "cells", "cpu", "nice", "library", "notes", "reason", "slices", "first"]),
    json_values,
)


@given(
    line=st.binary(max_size=200)
    | json_values.map(lambda value: json.dumps(value).encode())
    | fields.map(lambda value: json.dumps(value).encode())
)
def test_no_line_raises_anything_but_a_message_error(line: bytes) -> None:
    """Whatever stands in a line, decoding it gives a record or a MessageError."""
    for decode in DECODERS:
        with suppress(MessageError):
            decode(line)
