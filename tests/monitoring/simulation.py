"""A fleet that does not exist: hosts of plausible spread, each with the series of a real scrape, served by one process.

The series are those of tests/golden/metrics.prom, so a simulated host has what a real one has. Values follow from a
seed.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass

from tests.monitoring.documents import ROOT

GOLDEN = (ROOT / "tests/golden/metrics.prom").read_text().splitlines()
BRANDS = {
    # brand: (share of hosts, clock of AES in CBC mode against the golden host, speed-up against the golden host)
    "AMD EPYC 7763 64-Core Processor": (0.30, 1.0, 1.0),
    "AMD EPYC 9654 96-Core Processor": (0.15, 1.15, 1.0),
    "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz": (0.25, 1.25, 1.1),
    "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz": (0.15, 0.55, 0.8),
    "Neoverse-N1": (0.10, 1.6, 1.5),
    "Intel(R) Core(TM) i5-3317U CPU @ 1.70GHz": (0.05, 0.4, 0.55),
}
LIBRARIES = {"OpenSSL 3.0.19": (0.6, 1.0), "OpenSSL 3.5.7": (0.3, 1.02), "OpenSSL 1.1.1w": (0.1, 0.97)}
TROUBLE = {
    # what is wrong: share of hosts
    "absent": 0.02,
    "hidden": 0.01,
    "masked": 0.005,
    "unused": 0.005,
    "contended": 0.02,
    "slow": 0.01,
    "stale": 0.005,
    "failing": 0.003,
    "down": 0.002,
}
STATES = ("failed", "masked", "hidden", "absent", "unused", "accelerated")
INTERVAL = 60.0  # of runs, in seconds
ENGINES = ("libcrypto", "cryptography")


@dataclass(frozen=True, kw_only=True)
class Host:
    """A simulated host; `trouble` is "" or one of TROUBLE; `ratio` is its own deviation from its kind."""

    name: str
    brand: str
    library: str
    trouble: str
    ratio: float

    @property
    def expected(self) -> str:
        """Half of the hosts without AES are known for it and carry the label that says so."""
        return "false" if self.trouble == "absent" and int(self.name[-1]) % 2 else ""

    @property
    def without_aes(self) -> bool:
        return self.trouble in {"absent", "hidden"}

    @property
    def state(self) -> str:
        if self.trouble == "failing":
            return "failed"
        return self.trouble if self.trouble in STATES else "accelerated"

    def speed(self, path: str) -> float:
        """Return throughput of a path against the golden host's."""
        hardware, speedup = BRANDS[self.brand][1:]
        factor = hardware * LIBRARIES[self.library][1] * self.ratio
        if path == "hardware" and self.trouble == "slow":
            return factor * 0.6
        if path == "hardware" and self.trouble == "unused":
            return factor / speedup / 3.5
        return factor if path == "hardware" else factor / speedup


def fleet(count: int, seed: int = 1) -> list[Host]:
    """Return hosts, the same ones for a seed."""
    dice = random.Random(seed)

    def one_of(shares: dict[str, float]) -> str:
        return dice.choices(list(shares), list(shares.values()))[0]

    troubles = {**TROUBLE, "": 1 - sum(TROUBLE.values())}
    return [
        Host(
            name=f"node-{number:04}",
            brand=one_of({brand: row[0] for brand, row in BRANDS.items()}),
            library=one_of({library: row[0] for library, row in LIBRARIES.items()}),
            trouble=one_of(troubles),
            ratio=dice.gauss(1, 0.03),
        )
        for number in range(count)
    ]


Sample = tuple[str, dict[str, str], float]
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def small(labels: dict[str, str]) -> bool:
    """Return whether a series is in the small profile of 150: libcrypto only, three block sizes."""
    return labels.get("engine", "libcrypto") == "libcrypto" and labels.get("block_size", "16") in {"16", "1024", "8192"}


def golden(profile: str) -> list[Sample]:
    """Return the samples of a scrape."""
    found = [parsed(line) for line in GOLDEN if SAMPLE.match(line)]
    return [sample for sample in found if profile == "default" or small(sample[1])]


def parsed(line: str) -> Sample:
    match = SAMPLE.match(line)
    assert match
    return match[1], dict(LABEL.findall(match[2] or "")), float(match[3])


def scrape(host: Host, samples: list[Sample], now: float) -> str:
    """Return what a host would answer at a time."""
    dice = random.Random(f"{host.name} {int(now / INTERVAL)}")
    ended = now - now % INTERVAL - (9 * INTERVAL if host.trouble == "stale" else 0)
    lines = []
    for name, labels, value in samples:
        if missing(host, name, labels):
            continue
        number = ended if name.endswith("_timestamp_seconds") else changed(host, name, labels, value, dice)
        written = ",".join(f'{key}="{each}"' for key, each in relabelled(host, name, labels).items())
        lines.append(f"{name}{{{written}}} {number!r}")
    lines.append(f"process_start_time_seconds {now - now % 86400}")
    return "\n".join(lines) + "\n"


def missing(host: Host, name: str, labels: dict[str, str]) -> bool:
    """Return whether this host lacks a sample: no AES instructions, or nothing measured."""
    if host.without_aes and (labels.get("path") == "hardware" or name.startswith(("aes_speedup", "aes_silicon"))):
        return True
    figures = ("aes_engine_info", "aes_speedup", "aes_throughput", "aes_cycles")
    return host.trouble == "failing" and labels.get("engine", "libcrypto") == "libcrypto" and name.startswith(figures)


def changed(host: Host, name: str, labels: dict[str, str], value: float, dice: random.Random) -> float:
    """Return the value of a host's sample; `value` is the golden host's."""
    if name.startswith("aes_throughput"):
        contended = host.trouble == "contended" and "median" in name
        return value * host.speed(labels["path"]) * (dice.uniform(0.2, 0.5) if contended else dice.uniform(0.97, 1))
    if name == "aes_speedup_ratio":
        return value * host.speed("hardware") / host.speed("software") * dice.uniform(0.98, 1.02)
    if name == "aes_cpu_flag":
        return float(value and not (labels["flag"] == "aes" and host.without_aes))
    states = {
        "aes_exporter_interval_seconds": INTERVAL,
        "aes_exporter_path_up": float(host.trouble != "failing"),
        "aes_hardware_state": float(labels.get("state") == host.state),
    }
    return states.get(name, value)


def relabelled(host: Host, name: str, labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of a host's sample."""
    own = {
        "aes_cpu_info": {"brand": host.brand},
        "aes_engine_info": {"library": host.library} if labels.get("engine") == "libcrypto" else {},
        "aes_kernel_driver_info": {"accelerated": str(host.trouble != "slow").lower()},
    }
    return {**labels, **own.get(name, {})}


class Fleet:
    """Serves /metrics/NUMBER for every host over plain HTTP with keep-alive."""

    def __init__(self, hosts: list[Host], profile: str = "default") -> None:
        self.hosts, self._samples = hosts, golden(profile)
        self._texts: dict[int, tuple[int, bytes]] = {}

    def text(self, number: int) -> bytes:
        """Return the scrape of a host, rendered once a run."""
        run = int(time.time() / INTERVAL)
        if self._texts.get(number, (None, b""))[0] != run:
            rendered = scrape(self.hosts[number], self._samples, time.time()).encode()
            self._texts[number] = run, rendered
        return self._texts[number][1]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it is closed."""
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                number = int(request.split(b" ", 2)[1].rpartition(b"/")[2])
                down = self.hosts[number].trouble == "down"
                status, body = (b"503 Down", b"") if down else (b"200 OK", self.text(number))
                kind = b"text/plain; version=0.0.4"
                head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
                writer.write(head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def targets(self, port: int) -> list[dict[str, object]]:
        """Return the targets as Prometheus' file_sd reads them."""
        return [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {
                    "__metrics_path__": f"/metrics/{number}",
                    "instance": host.name,
                    **({"aes_expected": host.expected} if host.expected else {}),
                },
            }
            for number, host in enumerate(self.hosts)
        ]

    def run(self, port: int) -> None:
        """Serve until the process is ended."""

        async def serve() -> None:
            server = await asyncio.start_server(self.answer, "127.0.0.1", port, backlog=1024)
            await server.serve_forever()

        asyncio.run(serve())
