"""Building blocks of dashboards: queries, panels, variables and the grid, as the plain dicts of Grafana's classic JSON.

What comes in: PromQL, titles, descriptions. What goes out: dicts. Knows no metric; the dashboards do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
TAG = "aes-exporter"
HOST_UID, FLEET_UID = "aes-exporter-host", "aes-exporter-fleet"
GREEN, ORANGE, RED, GREY, BLUE = "green", "orange", "red", "#808080", "blue"
WIDTH = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A PromQL expression and how a series of it is called; `table` asks for the latest values as rows."""

    expr: str
    legend: str = "__auto"
    table: bool = False
    instant: bool = False

    def target(self, number: int) -> Json:
        now = self.table or self.instant
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.table else "time_series",
            "instant": now,
            "legendFormat": self.legend,
            "range": not now,
            "refId": chr(ord("A") + number),
        }


def rows(expr: str) -> Query:
    return Query(expr=expr, table=True)


def now(expr: str, legend: str) -> Query:
    return Query(expr=expr, legend=legend, instant=True)


def over_time(expr: str, legend: str) -> Query:
    return Query(expr=expr, legend=legend)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A panel without its place; `defaults` are those of its fields, `options` those of its type."""

    kind: str
    title: str
    description: str
    queries: Sequence[Query]
    width: int
    unit: str = "none"
    options: Mapping[str, Any]
    defaults: Mapping[str, Any]
    overrides: Sequence[Json] = ()
    transformations: Sequence[Json] = ()

    def json(self, identity: int, place: Json) -> Json:
        return {
            "datasource": DATASOURCE,
            "description": self.description,
            "fieldConfig": {"defaults": {"unit": self.unit, **self.defaults}, "overrides": list(self.overrides)},
            "gridPos": place,
            "id": identity,
            "options": dict(self.options),
            "targets": [query.target(number) for number, query in enumerate(self.queries)],
            "title": self.title,
            "transformations": list(self.transformations),
            "type": self.kind,
        }


def steps(*pairs: tuple[str, float | None]) -> Json:
    """Return thresholds: (colour, from where on); the first begins at minus infinity."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in pairs]}


def colored(*pairs: tuple[str, float | None]) -> Json:
    return {"color": {"mode": "thresholds"}, "thresholds": steps(*pairs)}


def named(words: Mapping[int, tuple[str, str]]) -> Json:
    """Return value mappings: number -> (word, colour)."""
    options = {
        str(number): {"color": color, "index": index, "text": word}
        for index, (number, (word, color)) in enumerate(words.items())
    }
    return {"mappings": [{"options": options, "type": "value"}]}


def override(field: str, **properties: Any) -> Json:
    """Return an override of a field by name, or by pattern if it is written between slashes."""
    matcher = "byRegexp" if field.startswith("/") else "byName"
    listed = [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()]
    return {"matcher": {"id": matcher, "options": field}, "properties": listed}


def stat(title: str, description: str, *queries: Query, width: int, unit: str = "none", **more: Any) -> Panel:
    """Return large numbers on a coloured ground."""
    options = {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "center",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
        "wideLayout": False,
    }
    return _panel("stat", title, description, queries, width=width, unit=unit, options=options, more=more)


def bars(title: str, description: str, *queries: Query, width: int, unit: str = "none", **more: Any) -> Panel:
    """Return horizontal bars, one a series, with the number at the end."""
    options = {
        "displayMode": "basic",
        "minVizHeight": 14,
        "namePlacement": "left",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    return _panel("bargauge", title, description, queries, width=width, unit=unit, options=options, more=more)


def columns(title: str, description: str, *queries: Query, width: int, unit: str, x: str, **more: Any) -> Panel:
    """Return a bar chart over the categories in field `x`."""
    options = {
        "barWidth": 0.9,
        "groupWidth": 0.8,
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "orientation": "auto",
        "showValue": "auto",
        "stacking": "none",
        "tooltip": {"mode": "multi", "sort": "none"},
        "xField": x,
        "xTickLabelRotation": 0,
    }
    defaults = {"color": {"mode": "palette-classic"}, "min": 0, "custom": {"fillOpacity": 80, "lineWidth": 0}}
    return _panel(
        "barchart", title, description, queries, width=width, unit=unit, options=options, more=more, defaults=defaults
    )


def lines(
    title: str,
    description: str,
    *queries: Query,
    width: int,
    unit: str = "none",
    stack: bool = False,
    at_least: float | None = None,
    **more: Any,
) -> Panel:
    """Return lines over time; the axis goes up to `at_least`, so that a line at zero lies at the bottom."""
    options = {
        "legend": {"calcs": ["lastNotNull"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom: Json = {
        "drawStyle": "line",
        "fillOpacity": 60 if stack else 0,
        "lineWidth": 1 if stack else 2,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stack else "none"},
    }
    if at_least is not None:
        custom["axisSoftMax"] = at_least
    defaults = {"color": {"mode": "palette-classic"}, "custom": custom, "min": 0}
    return _panel(
        "timeseries", title, description, queries, width=width, unit=unit, options=options, more=more, defaults=defaults
    )


def states(title: str, description: str, *queries: Query, width: int, **more: Any) -> Panel:
    """Return one coloured band a series over time."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.85,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    defaults = {"custom": {"fillOpacity": 75, "lineWidth": 0}}
    return _panel(
        "state-timeline",
        title,
        description,
        queries,
        width=width,
        unit="none",
        options=options,
        more=more,
        defaults=defaults,
    )


def table(title: str, description: str, *queries: Query, width: int, unit: str = "none", **more: Any) -> Panel:
    """Return rows; transformations say which columns."""
    options = {"cellHeight": "sm", "showHeader": True, "sortBy": more.pop("sort", [])}
    defaults = {"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "minWidth": 60}}
    return _panel(
        "table", title, description, queries, width=width, unit=unit, options=options, more=more, defaults=defaults
    )


def _panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    width: int,
    unit: str,
    options: Json,
    more: Json,
    defaults: Json | None = None,
) -> Panel:
    """Return a panel; `more` may name overrides, transformations, options, and else defaults of the fields."""
    overrides, transformations = more.pop("overrides", ()), more.pop("transformations", ())
    return Panel(
        kind=kind,
        title=title,
        description=description,
        queries=queries,
        width=width,
        unit=unit,
        options={**options, **more.pop("options", {})},
        defaults={**(defaults or {}), **more},
        overrides=overrides,
        transformations=transformations,
    )


def join(field: str, drop: Iterable[str], rename: Mapping[str, str]) -> list[Json]:
    """Return transformations that join tables on a field, keep `rename`'s columns in its order, and call them so."""
    return [
        {"id": "joinByField", "options": {"byField": field, "mode": "outer"}},
        select(drop, rename),
    ]


def select(drop: Iterable[str], rename: Mapping[str, str]) -> Json:
    """Return the transformation that drops columns, orders the others as in `rename` and renames them."""
    return {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(drop, True),
            "includeByName": {},
            "indexByName": {name: index for index, name in enumerate(rename)},
            "renameByName": {name: title for name, title in rename.items() if name != title},
        },
    }


def host_link(field: str) -> Json:
    """Return an override that makes a column of instances open the host dashboard at that host and time."""
    url = f"/d/{HOST_UID}?${{datasource:queryparam}}&var-instance=${{__value.raw}}&${{__url_time_range}}"
    return override(field, links=[{"title": "Open ${__value.raw}", "url": url}])


def variable(name: str, label: str, query: str, **more: Any) -> Json:
    """Return a variable with the values of a label, read again whenever the time range changes."""
    return {
        "datasource": DATASOURCE,
        "hide": 0,
        "includeAll": False,
        "label": label,
        "multi": False,
        "name": name,
        "options": [],
        "query": {"qryType": 1, "query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "type": "query",
        **more,
    }


def every_one() -> Json:
    """Return what makes a variable take many values, all of them at first."""
    return {"allValue": ".+", "current": {"text": "All", "value": "$__all"}, "includeAll": True, "multi": True}


def chosen(value: str) -> Json:
    return {"text": value, "value": value}


def datasource() -> Json:
    return {
        "hide": 0,
        "includeAll": False,
        "label": "Data Source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels under it, all of one height, from left to right; "" puts them under none."""

    title: str
    height: int
    panels: Sequence[Panel]


def grid(layout: Iterable[Row]) -> list[Json]:
    """Return panels with their places: rows from top to bottom, wrapped where the width is used up."""
    placed: list[Json] = []
    y = 0
    for row in layout:
        if row.title:
            place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
            heading = {"collapsed": False, "gridPos": place, "id": len(placed) + 1, "panels": []}
            placed.append({**heading, "title": row.title, "type": "row"})
            y += 1
        x = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + row.height
            placed.append(panel.json(len(placed) + 1, {"h": row.height, "w": panel.width, "x": x, "y": y}))
            x += panel.width
        y += row.height
    return placed


def dashboard(uid: str, title: str, description: str, variables: Sequence[Json], layout: Iterable[Row]) -> Json:
    """Return a whole dashboard, linked with all others of the project; links keep variables and time."""
    link = {
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": [TAG],
        "targetBlank": False,
        "title": "AES",
        "tooltip": "",
        "type": "dashboards",
        "url": "",
    }
    return {
        "annotations": {"list": []},
        "description": description,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [link],
        "panels": grid(layout),
        "refresh": "1m",
        "schemaVersion": 42,
        "tags": [TAG],
        "templating": {"list": [datasource(), *variables]},
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": title,
        "uid": uid,
    }
