"""The Kubernetes manifests, as kubectl renders them, against the schemas of Kubernetes and Prometheus operator."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aes_exporter.options import OPTIONS
from tests.deployment.debian import ROOT, run
from tests.deployment.manifests import KUBERNETES, load, pod, rendered
from tests.tools import require, unavailable

HERE = Path(__file__).parent
FOLDERS = ("overlays/annotations", "overlays/prometheus-operator")
VERSIONS = ("1.25", "1.31", "1.37")
RULES = ROOT / "deploy" / "prometheus" / "rules"
DASHBOARDS = ROOT / "grafana" / "dashboards"
PORT = next(option.default for option in OPTIONS if option.flag == "--web.listen-address")


def of_kind(kind: str, text: str) -> list[Any]:
    return [document for document in load(text) if document["kind"] == kind]


def rules() -> str:
    """Return the PrometheusRule resources that the documented command prints."""
    return run(KUBERNETES / "prometheus-rules.sh", "release: monitoring")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_kubernetes_accepts_it(folder: str, version: str, tmp_path: Path) -> None:
    """Every resource that Kubernetes knows is valid, with no unknown field, from an old to a new version."""
    own = [each for each in load(rendered(folder)) if "monitoring.coreos.com" not in each["apiVersion"]]
    file = tmp_path / "resources.json"
    file.write_text("\n---\n".join(json.dumps(each) for each in own))

    run(require("kubernetes-validate"), "--strict", "--quiet", "--kubernetes-version", version, file)
    assert own


def test_an_unknown_field_would_be_found(tmp_path: Path) -> None:
    """The check above is strict: a misspelt field of the pod's is refused."""
    file = tmp_path / "resources.yaml"
    file.write_text(rendered("base").replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"))
    command = (require("kubernetes-validate"), "--strict", "--quiet", file)

    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_pod_is_confined() -> None:
    """The pod runs as nobody in particular, can write nowhere, has no capability, no token and the default seccomp."""
    (container,) = pod()["containers"]

    assert pod()["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["tolerations"] == [{"operator": "Exists"}]
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & pod().keys()


def test_the_ports_fit_together() -> None:
    """Probes, Service, policy and discovery name the port that the exporter listens on by default."""
    (container,) = pod()["containers"]
    (service,) = of_kind("Service", rendered("base"))
    (policy,) = of_kind("NetworkPolicy", rendered("base"))
    (annotated,) = of_kind("DaemonSet", rendered("overlays/annotations"))
    annotations = annotated["spec"]["template"]["metadata"]["annotations"]

    assert container["ports"] == [{"name": "metrics", "containerPort": int(str(PORT).lstrip(":"))}]
    assert {probe: container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "livenessProbe": "/-/healthy",
        "readinessProbe": "/-/ready",
    }
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"][0]["targetPort"] == "metrics"
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}]}]
    assert f":{annotations['prometheus.io/port']}" == PORT


def test_every_selector_finds_the_pods() -> None:
    """Service, policy, DaemonSet and PodMonitor all select by labels that the pods carry."""
    resources = load(rendered("overlays/prometheus-operator"))
    specs = {each["kind"]: each.get("spec", {}) for each in resources}
    labels = specs["DaemonSet"]["template"]["metadata"]["labels"].items()
    selectors = [
        specs["Service"]["selector"],
        specs["NetworkPolicy"]["podSelector"]["matchLabels"],
        specs["DaemonSet"]["selector"]["matchLabels"],
        specs["PodMonitor"]["selector"]["matchLabels"],
    ]

    assert all(selector and selector.items() <= labels for selector in selectors)


def test_the_dashboards_are_those_of_grafana() -> None:
    """Each dashboard is one ConfigMap that Grafana's sidecar looks for, and its text is the file's, to the byte."""
    maps = of_kind("ConfigMap", rendered("overlays/prometheus-operator"))
    shipped = {name: text for each in maps for name, text in each["data"].items()}

    assert shipped == {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in maps} == {"1"}
    assert max(len(text) for text in shipped.values()) < 250_000, "more than `kubectl apply` can annotate"


def test_the_rules_are_those_of_prometheus(tmp_path: Path) -> None:
    """Each rule file is one PrometheusRule with the same groups and the label asked for, and promtool accepts it."""
    resources = of_kind("PrometheusRule", rules())

    assert {each["metadata"]["name"]: each["spec"] for each in resources} == {
        path.stem: yaml.safe_load(path.read_text()) for path in RULES.glob("*.yml")
    }
    assert {each["metadata"]["labels"]["release"] for each in resources} == {"monitoring"}
    for each in resources:
        file = tmp_path / f"{each['metadata']['name']}.yml"
        file.write_text(json.dumps(each["spec"]))
        run(require("promtool"), "check", "rules", "--lint-fatal", file)


@pytest.mark.timeout(120)
def test_the_prometheus_operator_accepts_it(tmp_path: Path) -> None:
    """PodMonitor and PrometheusRule are valid by the operator's definitions, and have no field these do not know."""
    if not (HERE / "node_modules" / "typescript").is_dir():
        unavailable("npm packages of tests/deployment are not installed: npm ci there")
    resources = of_kind("PodMonitor", rendered("overlays/prometheus-operator")) + of_kind("PrometheusRule", rules())
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    models = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1"
    checks = "".join(f"new models.{each['kind']}({json.dumps(each)}).validate();\n" for each in resources)
    types = "".join(f"({json.dumps(each)}) satisfies models.I{each['kind']};\n" for each in resources)
    (tmp_path / "values.js").write_text(f'import * as models from "{models}";\n{checks}')
    (tmp_path / "types.ts").write_text(f'import type * as models from "{models}";\n{types}')
    compiler = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")

    run(require("node"), tmp_path / "values.js")
    run(require("node"), HERE / "node_modules/typescript/bin/tsc", *compiler, tmp_path / "types.ts", cwd=tmp_path)
    assert len(resources) > 1
