#!/bin/sh
# Prints the rules of deploy/prometheus/rules as PrometheusRule resources:
#   deploy/kubernetes/prometheus-rules.sh [LABEL: VALUE]... | kubectl apply -f -
# Labels, written as in YAML, are what your Prometheus selects rules by, such as "release: kube-prometheus-stack".
set -eu
rules=$(dirname "$0")/../prometheus/rules
for file in "$rules"/*.yml; do
    cat <<HEAD
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: $(basename "$file" .yml)
  namespace: aes-exporter
  labels:
    app.kubernetes.io/name: aes-exporter
HEAD
    [ $# -eq 0 ] || printf '    %s\n' "$@"
    echo "spec:"
    sed 's/^./  &/' "$file"
done
