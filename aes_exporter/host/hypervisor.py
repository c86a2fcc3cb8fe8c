"""The name of the hypervisor, from what firmware, kernel or CPU say of themselves.

Short texts in, one name out, "" for none or unknown. Pure; knows nothing of files or of CPUs.
"""

from __future__ import annotations

import re

from aes_exporter.host.processor import as_label

# Start of sys_vendor, start of product_name, hypervisor. The first that fits counts. Vendors that build real machines,
# too (Microsoft, Google, Oracle), are told by the product.
_DMI = (
    ("Amazon EC2", "", "Amazon EC2"),
    ("", "Google Compute Engine", "Google Compute Engine"),
    ("DigitalOcean", "", "DigitalOcean"),
    ("OpenStack", "", "OpenStack"),
    ("", "OpenStack", "OpenStack"),
    ("Microsoft Corporation", "Virtual Machine", "Hyper-V"),
    ("VMware", "", "VMware"),
    ("", "VirtualBox", "VirtualBox"),
    ("Xen", "", "Xen"),
    ("Parallels", "", "Parallels"),
    ("", "Apple Virtualization", "Apple Virtualization"),
    ("", "BHYVE", "bhyve"),
    ("Bochs", "", "Bochs"),
    ("", "Bochs", "Bochs"),
    ("", "KVM", "KVM"),
    ("", "KubeVirt", "KVM"),
    ("QEMU", "", "QEMU"),
)

# What CPUID leaf 0x40000000 spells in EBX, ECX and EDX, without the padding.
_CPUID = {
    "KVMKVMKVM": "KVM",
    "Linux KVM Hv": "KVM",
    "TCGTCGTCGTCG": "QEMU TCG",
    "Microsoft Hv": "Hyper-V",
    "VMwareVMware": "VMware",
    "VBoxVBoxVBox": "VirtualBox",
    "XenVMMXenVMM": "Xen",
    "bhyve bhyve": "bhyve",
    "lrpepyh  vr": "Parallels",
    "prl hyperv": "Parallels",
    "ACRNACRNACRN": "ACRN",
    "QNXQVMBSQG": "QNX",
}

_DEVICE_TREE = (("kvm", "KVM"), ("xen", "Xen"), ("vmware", "VMware"))


def _by_dmi(sys_vendor: str, product_name: str) -> str:
    if sys_vendor.startswith("Amazon EC2") and ".metal" in product_name:
        return ""
    fitting = (name for v, p, name in _DMI if sys_vendor.startswith(v) and product_name.startswith(p))
    return next(fitting, "")


def _by_sysinfo(sysinfo: str) -> str:
    """Read the /proc/sysinfo of IBM Z, where even a "bare" Linux is a partition of the firmware's hypervisor."""
    program = re.search(r"^VM00 Control Program:(.*)", sysinfo, re.MULTILINE)
    if program:
        return "KVM" if "KVM" in program[1] else as_label(program[1])
    return "PR/SM" if sysinfo else ""


def detect(
    *,
    sys_vendor: str = "",
    product_name: str = "",
    sys_hypervisor_type: str = "",
    device_tree: str = "",
    partition_name: str = "",
    sysinfo: str = "",
    cpuinfo: str = "",
) -> str:
    """Return the hypervisor that these files name, the most telling first.

    They are DMI's strings, /sys/hypervisor/type, the device tree's hypervisor/compatible and ibm,partition-name,
    /proc/sysinfo of IBM Z and /proc/cpuinfo of POWER.
    """
    return (
        _by_dmi(sys_vendor, product_name)
        or as_label(sys_hypervisor_type).capitalize()
        or next((name for mark, name in _DEVICE_TREE if mark in device_tree), "")
        or _by_sysinfo(sysinfo)
        or ("QEMU" if "(emulated by qemu)" in cpuinfo else "")
        or ("PowerVM" if partition_name else "")
    )


def refine(known: str, *, cpuid_vendor: str = "") -> str:
    """Return the hypervisor, given what the files said and the vendor string of CPUID leaf 0x40000000.

    Firmware names the cloud or the product, so it counts more; but its "QEMU" leaves open whether KVM runs the guest.
    """
    vendor = cpuid_vendor.strip("\0 ")
    name = _CPUID.get(vendor, as_label(vendor))
    if known == "QEMU" and name in ("KVM", "QEMU TCG"):
        return name
    return known or name
