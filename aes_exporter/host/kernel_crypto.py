"""What the kernel would use for AES: the text of /proc/crypto in, a driver per mode out. Pure, and nothing raises."""

from __future__ import annotations

import re

from aes_exporter.host.processor import as_label
from aes_exporter.model import KernelDriver

_ALGORITHMS = ("cbc(aes)", "ecb(aes)", "xts(aes)", "ctr(aes)", "gcm(aes)")

# How the names of those AES drivers end that are plain or vector code. They are few and known; whatever else registers
# under a name of its own is there because it has AES instructions or is an engine.
_SOFTWARE = re.compile(r"[-_](generic|fixed-time|asm|arm|arm64|neon|neonbs|neonbs-sync|spe)$")
_LIBRARY = re.compile(r"[-_]lib$")


def parse_crypto(text: str, *, library: bool = False) -> tuple[KernelDriver, ...]:
    """Return what the kernel would use for each AES mode in /proc/crypto: the usable driver of the highest priority.

    A mode that nobody has used yet may be missing. `library` says whether the kernel's own AES library finds AES
    instructions on this host: from Linux 7.1 on it is what a mode without a driver of its own is built on.
    """
    algorithms = _algorithms(text)
    drivers = []
    for name in _ALGORITHMS:
        usable = [algorithm for algorithm in algorithms if algorithm.get("name") == name and _usable(algorithm)]
        if usable:
            driver = max(usable, key=lambda algorithm: int(algorithm["priority"]))["driver"]
            accelerated = _accelerated(driver, library=library)
            drivers.append(KernelDriver(algorithm=name, driver=as_label(driver), accelerated=accelerated))
    return tuple(drivers)


def _algorithms(text: str) -> list[dict[str, str]]:
    """Split into blocks. The kernel ends each with an empty line, so what comes after the last one may be cut off."""
    blocks = ([line.partition(":") for line in block.split("\n")] for block in text.split("\n\n")[:-1])
    return [{key.strip(): value.strip() for key, _, value in block} for block in blocks]


def _usable(algorithm: dict[str, str]) -> bool:
    """Whether a caller who names no driver may get this one. Old kernels print fewer lines."""
    return (
        algorithm.get("selftest") == "passed"
        and algorithm.get("internal", "no") == "no"
        and algorithm.get("fips", "yes") == "yes"
        and as_label(algorithm.get("driver", "")) != ""
        and re.fullmatch(r"-?[0-9]{1,10}", algorithm.get("priority", "")) is not None
    )


def _accelerated(driver: str, *, library: bool) -> bool:
    """Judge by the part that is AES: "gcm_base(ctr-aes-neonbs,ghash-ce)" is software, whatever computes its hash."""
    aes = next((part for part in re.split(r"[(),]", driver) if "aes" in part), driver)
    return library if _LIBRARY.search(aes) else not _SOFTWARE.search(aes)
