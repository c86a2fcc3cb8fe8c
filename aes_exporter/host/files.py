"""Files below /proc and /sys in, a Host out. Everything is optional and nothing raises; strings are fit for labels."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

from aes_exporter import capabilities
from aes_exporter.host import hypervisor
from aes_exporter.host.auxv import parse_auxv
from aes_exporter.host.kernel_crypto import parse_crypto
from aes_exporter.host.processor import parse_cpuinfo
from aes_exporter.model import Host

_READ_LIMIT = 4 << 20  # bytes; /proc/cpuinfo of 1024 CPUs is less than 2 MB

# The flag that lets the kernel's AES library use instructions; on 32-bit ARM it never does.
_LIBRARY_NEEDS = {
    "x86_64": "aes",
    "x86": "aes",
    "aarch64": "aes",
    "ppc64": "vcrypto",
    "riscv64": "zvkned",
    "s390x": "msa",
}


def read(root: Path = Path("/"), *, machine: str | None = None) -> Host:
    """Return what the files below `root` tell of the host; `machine` is what `uname -m` prints.

    Takes a few milliseconds and starts no process. The flags come from /proc/cpuinfo and, where that does not tell and
    this process is of the same architecture, from its auxiliary vector.
    """
    machine = machine or platform.machine()
    cpuinfo = text(root / "proc/cpuinfo")
    host = parse_cpuinfo(cpuinfo, machine)
    flags = host.flags
    if flags is None and host.architecture == capabilities.architecture():
        flags = parse_auxv(_bytes(root / "proc/self/auxv"), host.architecture)
    library = _LIBRARY_NEEDS.get(host.architecture) in (flags or ())
    return replace(
        host,
        flags=flags,
        hypervisor=_hypervisor(root, cpuinfo),
        kernel_drivers=parse_crypto(text(root / "proc/crypto"), library=library),
    )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_READ_LIMIT)
    except OSError:
        return b""


def text(path: Path) -> str:
    """Return what a file says, "" if it cannot be read."""
    return _bytes(path).decode(errors="replace")


def _hypervisor(root: Path, cpuinfo: str) -> str:
    return hypervisor.detect(
        sys_vendor=text(root / "sys/class/dmi/id/sys_vendor"),
        product_name=text(root / "sys/class/dmi/id/product_name"),
        sys_hypervisor_type=text(root / "sys/hypervisor/type"),
        device_tree=text(root / "proc/device-tree/hypervisor/compatible"),
        partition_name=text(root / "proc/device-tree/ibm,partition-name"),
        sysinfo=text(root / "proc/sysinfo"),
        cpuinfo=cpuinfo,
    )
