"""What both dashboards share: the thresholds of the rules, the words and colours of states, variables."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from grafana.panels import GREEN, GREY, ORANGE, RED, Json, chosen, colored, every_one, named, variable

RULES = Path(__file__).parent.parent / "deploy" / "prometheus" / "rules"


def _thresholds() -> dict[str, float]:
    """Return the thresholds of the rules: record name, with the operation where it has one -> number."""
    groups = yaml.safe_load((RULES / "aes-thresholds.yml").read_text())["groups"]
    found = {}
    for rule in (rule for group in groups for rule in group["rules"]):
        match = re.fullmatch(r"vector\(([\d.]+)\)", rule["expr"])
        if match is None:
            raise ValueError(f"not a plain number: {rule}")
        name = ":".join((rule["record"].split(":")[1], *rule.get("labels", {}).values()))
        found[name] = float(match[1])
    return found


THRESHOLD = _thresholds()

# The numbers are those of instance:aes_hardware_state:code; the colour says whether somebody has to act.
STATES: dict[int, tuple[str, str]] = {
    1: ("FAILED", RED),
    2: ("MASKED", RED),
    3: ("HIDDEN", ORANGE),
    4: ("ABSENT", GREY),
    5: ("UNUSED", RED),
    6: ("ACCELERATED", GREEN),
}
STATE_NAMES = ("failed", "masked", "hidden", "absent", "unused", "accelerated")
STATE_COLOR = {name: STATES[code][1] for code, name in enumerate(STATE_NAMES, 1)}
STATES_SAY = (
    "failed: could not be measured. masked: a setting switches AES off for programs. hidden: the hypervisor hides a "
    "flag whose instruction works. absent: this CPU has none. unused: the library does not use it. accelerated: fine."
)
BINDING = "Below 1 KiB the engine cryptography mostly shows what its Python binding costs per call."


def state_code(selector: str) -> str:
    """Return the expression of instance:aes_hardware_state:code on raw series, for one host and without rules."""
    parts = [
        f'{code} * (aes_hardware_state{{{selector}, state="{name}"}} == 1)' for code, name in enumerate(STATE_NAMES, 1)
    ]
    return f"sum by (engine) ({' or '.join(parts)})"


def state_words(**more: tuple[str, str]) -> Json:
    return named({**STATES, **{int(code): word for code, word in more.items()}})


def low_is_bad(threshold: float, warning: float | None = None) -> Json:
    """Return colours for a number that should be high: red below the threshold, orange up to `warning`."""
    if warning is None:
        return colored((RED, None), (GREEN, threshold))
    return colored((RED, None), (ORANGE, threshold), (GREEN, warning))


def high_is_bad(threshold: float) -> Json:
    return colored((GREEN, None), (RED, threshold))


def job(metric: str = "aes_exporter_build_info") -> Json:
    return variable("job", "Job", f"label_values({metric}, job)", **every_one())


def cell(selector: str) -> list[Json]:
    """Return the variables engine, algorithm and operation, each with the values of the chosen hosts."""
    defaults = {"engine": "libcrypto", "algorithm": "aes-128-cbc", "operation": "encrypt"}
    chain = selector
    found = []
    for name, value in defaults.items():
        query = f"label_values(aes_throughput_bytes_per_second{{{chain}}}, {name})"
        found.append(variable(name, name.capitalize(), query, current=chosen(value)))
        chain += f', {name}="${name}"'
    return found
