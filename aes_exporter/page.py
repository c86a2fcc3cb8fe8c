"""The landing page: a Snapshot and the path of the metrics -> HTML. Its links are relative, for proxies' sake."""

from __future__ import annotations

from html import escape

from aes_exporter import __version__
from aes_exporter.model import Snapshot


def page(snapshot: Snapshot, telemetry_path: str) -> str:
    """Return the whole page as HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>aes-exporter</title>
</head>
<body>
<h1>aes-exporter</h1>
<p>Version {escape(__version__)}, measuring AES on {escape(snapshot.host.brand or snapshot.host.architecture)}.</p>
<ul>
<li><a href=".{escape(telemetry_path)}">Metrics</a></li>
<li><a href="./-/healthy">Health</a></li>
<li><a href="./-/ready">Readiness</a></li>
</ul>
</body>
</html>
"""
