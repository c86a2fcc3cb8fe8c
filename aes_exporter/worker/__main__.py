"""The worker program: sets its cells up, proves them, and measures a slice of each whenever it is asked.

Standard input and output are the channel to the daemon; whatever a library prints goes to standard error instead. It
ends at the end of its input, and with the daemon.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from ctypes import CDLL
from typing import BinaryIO

from aes_exporter import __version__
from aes_exporter.vocabulary import Cell, Reason
from aes_exporter.worker import compiled, messages
from aes_exporter.worker.answers import known_answer, to_prove
from aes_exporter.worker.chains import Chains
from aes_exporter.worker.engines import Engine, EngineError, Operation, load
from aes_exporter.worker.lifeline import die_with_parent
from aes_exporter.worker.measure import calibrate, take_turn
from aes_exporter.worker.messages import PARTS, Hello, Message, Ready, Refusal, Setup, Slices
from aes_exporter.worker.placement import settle
from aes_exporter.worker.probe import PROBE_NS, Probe


class Channel:
    """The daemon's end of the wall: lines in, lines out."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @classmethod
    def take_standard_streams(cls) -> Channel:
        """Move the channel off descriptors 0 and 1, so that a stray print cannot corrupt it."""
        incoming, outgoing = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb", buffering=0))

    def receive(self) -> bytes:
        """Return the next line, b"" at the end of input. Raises MessageError if it is too long."""
        line = self._incoming.readline(messages.MAX_LINE + 1)
        if len(line) > messages.MAX_LINE:
            raise messages.MessageError(f"a request of more than {messages.MAX_LINE} bytes")
        return line

    def send(self, message: Message) -> None:
        self._outgoing.write(messages.encode(message))


def prove(engine: Engine, cells: tuple[Cell, ...]) -> list[Operation]:
    """Return the cells set up, each having given the known answer. Raises EngineError, also for wrong bytes."""
    operations = {}
    for cell in {**dict.fromkeys(to_prove(cells)), **dict.fromkeys(cells)}:
        plaintext, ciphertext = known_answer(cell.algorithm, cell.block_size)
        question, answer = (plaintext, ciphertext) if cell.operation == "encrypt" else (ciphertext, plaintext)
        operations[cell] = engine.operation(cell)
        if operations[cell].answers(question) != {answer}:
            detail = f"{cell.algorithm} {cell.operation} of {cell.block_size} bytes gave wrong bytes"
            raise EngineError(Reason.WRONG_ANSWER, detail)
    return [operations[cell] for cell in cells]


def serve(channel: Channel, setup: Setup) -> None:
    """Answer a Setup and then every Turn. Raises EngineError."""
    cpu, notes = settle(setup.cpu, setup.nice)
    library = _compiled()
    engine = load(setup.engine, setup.libcrypto, Probe(library))
    operations = prove(engine, setup.cells)
    timed_ns = setup.slice_ns - (PARTS + 1) * PROBE_NS
    calls = [_calls(operation, timed_ns) for operation in operations]
    chains = Chains(library) if library else None
    names = tuple(chains.units) if chains else ()
    channel.send(Ready(library=engine.library, capabilities=engine.capabilities, cpu=cpu, notes=notes, chains=names))
    while line := channel.receive():
        turn = messages.turn(line, cells=len(operations), chains=names)
        timed = chains.take(turn.chains) if chains else ()
        slices = take_turn(operations, calls, turn.first, turn.step)
        channel.send(Slices(slices=tuple(slices), chains=timed))


def _compiled() -> CDLL | None:
    try:
        return compiled.load()
    except EngineError:
        return None  # the engine needs it or does not; probe and chains are an extra


def _calls(operation: Operation, nanoseconds: int) -> int:
    return calibrate(lambda calls: calls * operation.slice(0, calls).pace, nanoseconds)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is the daemon's to handle
    die_with_parent()
    gc.disable()
    channel = Channel.take_standard_streams()
    channel.send(Hello(version=__version__))
    if not (line := channel.receive()):
        return
    try:
        setup = messages.setup(line)
        if setup.version != __version__:
            detail = f"the worker on disk is {__version__}, the daemon {setup.version}: restart it"
            raise EngineError(Reason.VERSION_MISMATCH, detail)
        serve(channel, setup)
    except EngineError as error:
        channel.send(Refusal(reason=error.reason, detail=error.detail[: messages.MAX_TEXT]))
    except messages.MessageError as error:
        sys.exit(f"bad request: {error}")
    except BrokenPipeError:
        sys.exit("the daemon is gone")


if __name__ == "__main__":
    main()
