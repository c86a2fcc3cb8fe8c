"""The host: identity and flags of its CPU, its hypervisor, the kernel's AES drivers.

A root directory in, a frozen Host out. Knows files and one child process, nothing of measuring.
"""

from aes_exporter.host.files import read
from aes_exporter.host.pycpuinfo import complete

__all__ = ["complete", "read"]
