"""Write the dashboards: python -m grafana.generate. A test compares the committed JSON with what this writes."""

from __future__ import annotations

import json
from pathlib import Path

from grafana import fleet, host
from grafana.panels import Json

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = {"aes-host.json": host.build, "aes-fleet.json": fleet.build}


def canonical(dashboard: Json) -> str:
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, build in DASHBOARDS.items():
        (FOLDER / name).write_text(canonical(build()))


if __name__ == "__main__":
    main()
