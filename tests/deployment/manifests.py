"""The Kubernetes manifests as kubectl renders them."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from tests.deployment.debian import ROOT, run
from tests.tools import require

KUBERNETES = ROOT / "deploy" / "kubernetes"


@cache
def rendered(folder: str) -> str:
    """Return what `kubectl kustomize` makes of a folder."""
    return run(require("kubectl"), "kustomize", KUBERNETES / folder)


def load(text: str) -> list[Any]:
    """Return the documents of a YAML text."""
    return [document for document in yaml.safe_load_all(text) if document]


def pod() -> Any:
    """Return the pod's specification."""
    (daemonset,) = (each for each in load(rendered("base")) if each["kind"] == "DaemonSet")
    return daemonset["spec"]["template"]["spec"]
