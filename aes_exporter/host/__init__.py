"""The host: identity and flags of its CPU, its hypervisor, the kernel's AES drivers, settings that mask AES.

A root directory in, a frozen Host out. Knows files and one-shot children, nothing of measuring.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aes_exporter.host import files, hypervisor, instructions, masks, pycpuinfo
from aes_exporter.model import Host


def read(root: Path = Path("/"), *, machine: str | None = None, environ: Mapping[str, str] = os.environ) -> Host:
    """Return what files and environment tell of the host now; `machine` is what `uname -m` prints.

    Takes a few milliseconds, starts no process, and raises nothing.
    """
    known = files.read(root, machine=machine)
    return replace(known, masks=masks.find(root, machine=known.architecture, environ=environ))


async def complete(known: Host) -> Host:
    """Return the host with what only children can find out: py-cpuinfo's identity, CPUID's hypervisor.

    Costs up to a second of CPU time, the first time that it is needed.
    """
    named = await pycpuinfo.complete(known)
    signature = await instructions.hypervisor_signature()
    return replace(named, hypervisor=hypervisor.refine(named.hypervisor, cpuid_vendor=signature))


def refresh(known: Host) -> Host:
    """Return the host as its files tell it now, with what is known already where they do not tell."""
    now = read()
    told = {name: getattr(now, name) or getattr(known, name) for name in _IDENTITY}
    return replace(now, **told)


_IDENTITY = ("brand", "vendor", "family", "model", "stepping", "hypervisor")
