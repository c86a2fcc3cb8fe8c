"""Prometheus exporter that keeps measuring how fast AES runs on this host, with and without its AES instructions."""

__version__ = "0.1.0"
