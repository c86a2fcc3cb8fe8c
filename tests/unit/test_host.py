"""What the host's files tell, whatever state they are in: hypervisor, kernel drivers, and py-cpuinfo's help."""

from __future__ import annotations

import asyncio
import logging
import platform
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from aes_exporter import host
from aes_exporter.host import hypervisor, kernel_crypto, pycpuinfo
from aes_exporter.model import Host, KernelDriver

PROC = Path(__file__).parents[1] / "data" / "proc"
ALDER_LAKE = (PROC / "cpuinfo-x86-alderlake-i7-1260p.txt").read_text()
POWER8 = (PROC / "cpuinfo-ppc64le-power8-kvm.txt").read_text()
FIXED_TIME = (PROC / "proc-crypto-vm-6.18-aes-fixed-time.txt").read_text()

FILES = (
    "proc/cpuinfo",
    "proc/crypto",
    "proc/self/auxv",
    "proc/sysinfo",
    "proc/device-tree/hypervisor/compatible",
    "proc/device-tree/ibm,partition-name",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/hypervisor/type",
)


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def hwcaps(hwcap: int, hwcap2: int = 0) -> bytes:
    return struct.pack("NNNNNN", 16, hwcap, 26, hwcap2, 0, 0)


needs_64_bit = pytest.mark.skipif(struct.calcsize("N") != 8, reason="the words of a vector are this process's")


# --- read -------------------------------------------------------------------------------------------------------------


def test_a_whole_tree_gives_a_whole_host(tmp_path: Path) -> None:
    """Identity, flags, hypervisor and drivers come from the files below the root and from nowhere else."""
    root = tree(
        tmp_path,
        {
            "proc/cpuinfo": ALDER_LAKE,
            "proc/crypto": FIXED_TIME,
            "sys/class/dmi/id/sys_vendor": "QEMU\n",
            "sys/class/dmi/id/product_name": "Standard PC (Q35 + ICH9, 2009)\n",
        },
    )

    assert host.read(root, machine="x86_64") == Host(
        architecture="x86_64",
        flags=frozenset({"aes", "avx", "avx2", "pclmulqdq", "sha_ni", "ssse3", "vaes", "vpclmulqdq"}),
        brand="12th Gen Intel(R) Core(TM) i7-1260P",
        vendor="GenuineIntel",
        family="6",
        model="154",
        stepping="3",
        hypervisor="QEMU",
        kernel_drivers=(
            KernelDriver(algorithm="cbc(aes)", driver="cbc(ecb(aes-fixed-time))", accelerated=False),
            KernelDriver(algorithm="ecb(aes)", driver="ecb(aes-fixed-time)", accelerated=False),
        ),
    )


def test_nothing_there_is_an_empty_host(tmp_path: Path) -> None:
    """Without any file the flags are unknown, not absent, and nothing raises."""
    assert host.read(tmp_path, machine="x86_64") == Host(architecture="x86_64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "ppc64le", "s390x"])
def test_directories_in_place_of_files(tmp_path: Path, machine: str) -> None:
    """What cannot be read counts as missing."""
    for name in FILES:
        (tmp_path / name).mkdir(parents=True)

    found = host.read(tmp_path, machine=machine)

    assert found == Host(architecture=found.architecture)


def test_binary_files_give_clean_strings(tmp_path: Path) -> None:
    """Bytes that are no text neither raise nor get out."""
    junk = bytes(range(256)) * 40
    root = tree(
        tmp_path, dict.fromkeys(FILES, junk) | {"proc/cpuinfo": b"vendor_id\t: \xff\x00\x1bGood\nmodel name\t: " + junk}
    )

    assert host.read(root, machine="x86_64").vendor == "\ufffd Good"


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    """A file without end is read up to the limit: what comes later is not there."""
    endless = "vendor_id\t: GenuineIntel\n" + "x" * (5 << 20) + "\nmodel name\t: too late\n"
    root = tree(tmp_path, {"proc/cpuinfo": endless})

    assert host.read(root, machine="x86_64") == Host(architecture="x86_64", vendor="GenuineIntel")


def test_a_thousand_cpus_are_read_quickly(tmp_path: Path) -> None:
    """The text of 1024 CPUs costs milliseconds; fifty times that is allowed here, for slow and busy machines."""
    block = ALDER_LAKE + "\n"
    root = tree(tmp_path, {"proc/cpuinfo": "".join(block.replace(": 0", f": {cpu}") for cpu in range(1024))})

    begin = time.process_time()
    host.read(root, machine="x86_64")

    assert time.process_time() - begin < 0.5


@needs_64_bit
def test_power_takes_its_flags_from_the_auxiliary_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/cpuinfo of POWER tells nothing of its crypto instructions; AT_HWCAP2 does."""
    monkeypatch.setattr(platform, "machine", lambda: "ppc64le")
    root = tree(tmp_path, {"proc/cpuinfo": POWER8, "proc/self/auxv": hwcaps(0xDC0065C2, 0xEF000000)})

    found = host.read(root)

    assert found.flags == frozenset({"altivec", "vcrypto"})
    assert (found.brand, found.hypervisor) == ("POWER8E (raw)", "QEMU")


@needs_64_bit
def test_the_vector_of_another_architecture_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vector is this process's own: it tells nothing of the machine that the files are from."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    root = tree(tmp_path, {"proc/cpuinfo": POWER8, "proc/self/auxv": hwcaps(0xDC0065C2, 0xEF000000)})

    assert host.read(root, machine="ppc64le").flags is None


@needs_64_bit
def test_a_container_of_another_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under qemu-user the text is the real host's, and only the vector is that of the emulated CPU."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    root = tree(tmp_path, {"proc/cpuinfo": ALDER_LAKE, "proc/self/auxv": hwcaps(0b1111010)})

    assert host.read(root) == Host(architecture="aarch64", flags=frozenset({"asimd", "aes", "pmull", "sha1", "sha2"}))


@needs_64_bit
def test_what_cpuinfo_tells_counts_more_than_the_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vector is asked only where the text does not tell."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    no_crypto = (PROC / "cpuinfo-aarch64-no-crypto-odroid-c2.txt").read_text()
    root = tree(tmp_path, {"proc/cpuinfo": no_crypto, "proc/self/auxv": hwcaps(0xFF)})

    assert host.read(root).flags == frozenset({"asimd"})


# --- kernel drivers ---------------------------------------------------------------------------------------------------


def algorithm(driver: str, /, name: str = "cbc(aes)", **fields: str) -> str:
    """Print a block as the kernel does."""
    lines = {"name": name, "driver": driver, "module": "kernel", "priority": "100", "refcnt": "1"}
    lines |= {"selftest": "passed", "internal": "no", "type": "skcipher"} | fields
    return "".join(f"{key:12} : {value}\n" for key, value in lines.items()) + "\n"


def chosen(*blocks: str) -> list[str]:
    return [each.driver for each in kernel_crypto.parse_crypto("".join(blocks))]


@pytest.mark.parametrize(
    ("driver", "accelerated"),
    [
        # x86
        ("cbc-aes-aesni", True),
        ("cryptd(__cbc-aes-aesni)", True),
        ("cbc(aes-aesni)", True),
        ("xts-aes-aesni-avx", True),
        ("xts-aes-vaes-avx2", True),
        ("xts-aes-vaes-avx512", True),
        ("generic-gcm-aesni", True),
        ("generic-gcm-vaes-avx512", True),
        ("gcm_base(ctr-aes-aesni,ghash-generic)", True),
        ("cbc-aes-padlock", True),
        ("cbc(aes-asm)", False),
        # other architectures
        ("cbc-aes-ce", True),
        ("xts(ecb-aes-ce)", True),
        ("cbc-aes-neon", False),
        ("cbc-aes-neonbs", False),
        ("ctr-aes-neonbs-sync", False),
        ("gcm_base(ctr-aes-neonbs,ghash-ce)", False),
        ("cbc(aes-arm)", False),
        ("cbc(aes-arm64)", False),
        ("p8_aes_cbc", True),
        ("cbc-ppc-spe", False),
        ("cbc-aes-s390", True),
        ("cbc-aes-riscv64-zvkned", True),
        ("xts-aes-riscv64-zvkned-zvbb-zvkg", True),
        ("cbc-aes-sparc64", True),
        # engines
        ("cbc-aes-ccp", True),
        ("qat_aes_cbc", True),
        ("cbc-aes-caam-qi2", True),
        ("mv-cbc-aes", True),
        ("cbc-aes-sun8i-ce", True),
        ("cbc-aes-armada", True),
        # plain software
        ("cbc(aes-generic)", False),
        ("cbc(ecb(aes-generic))", False),
        ("xts(ecb(aes-fixed-time))", False),
        ("gcm_base(ctr(aes-generic),ghash-clmulni)", False),
    ],
)
def test_drivers_of_linux(driver: str, accelerated: bool) -> None:
    """A driver is software when the part of its name that is AES is known to be; anything else brings hardware."""
    assert kernel_crypto.parse_crypto(algorithm(driver)) == (
        KernelDriver(algorithm="cbc(aes)", driver=driver, accelerated=accelerated),
    )


@pytest.mark.parametrize("driver", ["cbc(aes-lib)", "xts(ecb(aes-lib))", "cbc-aes-lib"])
@pytest.mark.parametrize("library", [True, False])
def test_the_kernels_library_is_as_good_as_its_cpu(driver: str, library: bool) -> None:
    """ "aes-lib" uses AES instructions where there are some, so the name alone does not tell."""
    (found,) = kernel_crypto.parse_crypto(algorithm(driver), library=library)

    assert found.accelerated is library


@pytest.mark.parametrize(
    ("sample", "machine", "accelerated"),
    [
        ("x86-alderlake-i7-1260p", "x86_64", True),
        ("x86-pentium-g640-no-aes", "x86_64", False),
        ("aarch64-thunderx", "aarch64", True),
        ("aarch64-no-crypto-odroid-c2", "aarch64", False),
        ("s390x-z-2827", "s390x", True),
        ("riscv64-sifive-u74", "riscv64", False),
        ("mips-netgear-wndr3700", "mips", False),
    ],
)
def test_the_library_is_judged_by_the_flags(tmp_path: Path, sample: str, machine: str, accelerated: bool) -> None:
    """Reading a host tells whether its kernel's AES library has instructions to use."""
    cpuinfo = (PROC / f"cpuinfo-{sample}.txt").read_text()
    root = tree(tmp_path, {"proc/cpuinfo": cpuinfo, "proc/crypto": algorithm("cbc(aes-lib)")})

    assert [each.accelerated for each in host.read(root, machine=machine).kernel_drivers] == [accelerated]


def test_32_bit_arm_has_no_instructions_in_the_library(tmp_path: Path) -> None:
    """The kernel's AES library is plain code on 32-bit ARM, even on a CPU with AES instructions."""
    cpuinfo = "Features\t: half thumb neon aes\nCPU implementer\t: 0x41\n"
    root = tree(tmp_path, {"proc/cpuinfo": cpuinfo, "proc/crypto": algorithm("cbc(aes-lib)")})

    found = host.read(root, machine="armv8l")

    assert found.flags == frozenset({"aes", "neon"})
    assert [each.accelerated for each in found.kernel_drivers] == [False]


def test_the_highest_priority_wins() -> None:
    """The kernel takes the driver of the highest priority, by number and not by spelling, wherever it stands."""
    slow, fast = algorithm("slow-aes-a", priority="99"), algorithm("fast-aes-b", priority="400")

    assert chosen(slow, fast) == chosen(fast, slow) == ["fast-aes-b"]
    assert chosen(algorithm("negative-aes", priority="-5")) == ["negative-aes"]


def test_the_first_of_equals_wins() -> None:
    """Of two drivers with the same priority the kernel takes the one it lists first."""
    assert chosen(algorithm("first-aes"), algorithm("second-aes")) == ["first-aes"]


@pytest.mark.parametrize(
    "fields",
    [
        {"internal": "yes"},
        {"selftest": "unknown"},
        {"selftest": "failed"},
        {"fips": "no"},
        {"priority": "high"},
        {"priority": "9" * 5000},
        {"priority": "\u0664\u0660\u0660"},
        {"driver": "\0"},
    ],
)
def test_drivers_that_nobody_is_given(fields: dict[str, str]) -> None:
    """Internal, untested and garbled drivers do not count, whatever their priority."""
    unusable = algorithm("better-aes", **({"priority": "999"} | fields))

    assert chosen(unusable, algorithm("usable-aes")) == ["usable-aes"]
    assert chosen(unusable) == []


def test_driver_names_are_fit_for_labels() -> None:
    """Out-of-tree modules may call themselves anything; the name goes out clean and short."""
    assert chosen(algorithm("my\x1b[1m  aes\0" + "!" * 500)) == ["my [1m aes " + "!" * 189]


def test_old_kernels_print_fewer_lines() -> None:
    """Before Linux 4.2 there was no line about internal drivers."""
    block = algorithm("cbc-aes-aesni").replace(f"{'internal':12} : no\n", "")

    assert "internal" not in block
    assert chosen(block) == ["cbc-aes-aesni"]


def test_the_modes_come_in_one_order_and_others_not_at_all() -> None:
    """Only the AES modes are reported, each once, always in the same order."""
    names = ["gcm(aes)", "xts(aes)", "__cbc(aes)", "cbc(des3_ede)", "ecb(aes)", "aes", "ctr(aes)", "cbc(aes)"]
    drivers = kernel_crypto.parse_crypto("".join(algorithm(f"{name}-driver", name=name) for name in names))

    assert [each.algorithm for each in drivers] == ["cbc(aes)", "ecb(aes)", "xts(aes)", "ctr(aes)", "gcm(aes)"]


def test_a_block_that_is_cut_off_does_not_count() -> None:
    """Without the empty line behind it, a block may lack the line that forbids its use."""
    block = algorithm("cbc-aes-aesni")

    assert {tuple(chosen(block[:end])) for end in range(len(block))} == {()}
    assert chosen(block) == ["cbc-aes-aesni"]


# --- hypervisor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "QEMU"),
        ("QEMU", "KVM Virtual Machine", "KVM"),
        ("Red Hat", "KVM", "KVM"),
        ("KubeVirt", "KubeVirt", "KVM"),
        ("Red Hat", "OpenStack Compute", "OpenStack"),
        ("OpenStack Foundation", "OpenStack Nova", "OpenStack"),
        ("Amazon EC2", "m7a.large", "Amazon EC2"),
        ("Amazon EC2", "m7a.metal-48xl", ""),
        ("Google", "Google Compute Engine", "Google Compute Engine"),
        ("Google", "Kled", ""),
        ("DigitalOcean", "Droplet", "DigitalOcean"),
        ("Microsoft Corporation", "Virtual Machine", "Hyper-V"),
        ("Microsoft Corporation", "Surface Laptop", ""),
        ("VMware, Inc.", "VMware7,1", "VMware"),
        ("innotek GmbH", "VirtualBox", "VirtualBox"),
        ("Oracle Corporation", "ORACLE SERVER X8-2", ""),
        ("Xen", "HVM domU", "Xen"),
        ("Parallels International GmbH.", "Parallels ARM Virtual Machine", "Parallels"),
        ("Apple Inc.", "Apple Virtualization Generic Platform", "Apple Virtualization"),
        ("Apple Inc.", "MacBookPro16,1", ""),
        ("FreeBSD", "BHYVE", "bhyve"),
        ("Bochs", "Bochs", "Bochs"),
        ("Dell Inc.", "PowerEdge R640", ""),
        ("", "", ""),
    ],
)
def test_hypervisors_by_firmware(tmp_path: Path, vendor: str, product: str, name: str) -> None:
    """DMI names the hypervisor or the cloud; makers of real machines are not taken for one."""
    root = tree(
        tmp_path, {"sys/class/dmi/id/sys_vendor": f"{vendor}\n", "sys/class/dmi/id/product_name": f"{product}\n"}
    )

    assert host.read(root, machine="x86_64").hypervisor == name


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("sys/hypervisor/type", "xen\n", "Xen"),
        ("proc/device-tree/hypervisor/compatible", "linux,kvm\0", "KVM"),
        ("proc/device-tree/hypervisor/compatible", "xen,xen-4.17\0xen,xen\0", "Xen"),
        ("proc/device-tree/hypervisor/compatible", "vmware\0", "VMware"),
        ("proc/device-tree/ibm,partition-name", "lpar7\0", "PowerVM"),
        ("proc/sysinfo", "Type: 3931\nVM00 Name: web\nVM00 Control Program: KVM/Linux      \n", "KVM"),
        ("proc/sysinfo", "VM00 Control Program: z/VM    7.3.0   \nVM01 Control Program: KVM/Linux\n", "z/VM 7.3.0"),
        ("proc/sysinfo", "Manufacturer: IBM\nType: 3931\nLPAR Name: PROD1\n", "PR/SM"),
        ("proc/cpuinfo", POWER8, "QEMU"),
        ("proc/cpuinfo", (PROC / "cpuinfo-ppc64le-power9-bare.txt").read_text(), ""),
        ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n", ""),
    ],
)
def test_hypervisors_by_other_files(tmp_path: Path, file: str, content: str, name: str) -> None:
    """Where there is no DMI, other files name the hypervisor; a flag without a name leaves it unknown."""
    assert host.read(tree(tmp_path, {file: content}), machine="ppc64le").hypervisor == name


def test_a_kvm_guest_on_power(tmp_path: Path) -> None:
    """The device tree's word for KVM counts more than the machine being QEMU's and the partition having a name."""
    files = {
        "proc/cpuinfo": POWER8,
        "proc/device-tree/ibm,partition-name": "guest\0",
        "proc/device-tree/hypervisor/compatible": "linux,kvm\0",
    }

    assert host.read(tree(tmp_path, files), machine="ppc64le").hypervisor == "KVM"


@pytest.mark.parametrize(
    ("cpuid_vendor", "name"),
    [
        ("KVMKVMKVM\0\0\0", "KVM"),
        ("KVMKVMKVM", "KVM"),
        ("Microsoft Hv", "Hyper-V"),
        ("VMwareVMware", "VMware"),
        ("XenVMMXenVMM", "Xen"),
        ("TCGTCGTCGTCG", "QEMU TCG"),
        ("bhyve bhyve ", "bhyve"),
        (" lrpepyh  vr", "Parallels"),
        ("prl hyperv  ", "Parallels"),
        ("ACRNACRNACRN", "ACRN"),
        ("QNXQVMBSQG\0\0", "QNX"),
        ("SomethingNew", "SomethingNew"),
        ("\x1b\0\x07", ""),
        ("", ""),
    ],
)
def test_hypervisors_by_cpuid(cpuid_vendor: str, name: str) -> None:
    """The vendor string of CPUID names a hypervisor where no file did, a new one by its own word."""
    assert hypervisor.refine("", cpuid_vendor=cpuid_vendor) == name


@pytest.mark.parametrize(
    ("known", "cpuid_vendor", "name"),
    [
        ("Amazon EC2", "KVMKVMKVM", "Amazon EC2"),
        ("QEMU", "KVMKVMKVM", "KVM"),
        ("QEMU", "TCGTCGTCGTCG", "QEMU TCG"),
        ("QEMU", "Microsoft Hv", "QEMU"),
        ("QEMU", "", "QEMU"),
    ],
)
def test_cpuid_refines_what_firmware_said(known: str, cpuid_vendor: str, name: str) -> None:
    """A cloud keeps its name; "QEMU" becomes KVM or plain emulation, and KVM posing as Hyper-V is not believed."""
    assert hypervisor.refine(known, cpuid_vendor=cpuid_vendor) == name


# --- complete ---------------------------------------------------------------------------------------------------------

UNKNOWN = Host(architecture="x86_64")
FACTS = {"brand_raw": "AMD  EPYC", "vendor_id_raw": "AuthenticAMD", "family": 25, "model": 1, "stepping": "0"}


def answering(facts: object) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        return facts

    return ask


def failing(error: BaseException) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        raise error

    return ask


async def test_py_cpuinfo_fills_what_is_missing(tmp_path: Path) -> None:
    """What the files left open comes from py-cpuinfo, cleaned, numbers as text."""
    assert await pycpuinfo.complete(UNKNOWN, root=tmp_path, ask=answering(FACTS | {"flags": ["aes"]})) == Host(
        architecture="x86_64", brand="AMD EPYC", vendor="AuthenticAMD", family="25", model="1", stepping="0"
    )


async def test_py_cpuinfo_replaces_nothing(tmp_path: Path) -> None:
    """What the files told stays."""
    known = Host(architecture="x86_64", vendor="CentaurHauls", model="13")
    found = await pycpuinfo.complete(known, root=tmp_path, ask=answering(FACTS))

    assert (found.brand, found.vendor, found.family, found.model) == ("AMD EPYC", "CentaurHauls", "25", "13")


async def test_py_cpuinfo_is_not_asked_in_vain(tmp_path: Path) -> None:
    """A host whose brand and vendor are known costs nothing more."""
    known = Host(architecture="aarch64", brand="Cortex-A72", vendor="ARM")

    assert await pycpuinfo.complete(known, root=tmp_path, ask=failing(AssertionError("asked"))) is known


async def test_py_cpuinfo_is_not_asked_about_another_machine(tmp_path: Path) -> None:
    """Under user-mode emulation py-cpuinfo would read the real host's identity."""
    root = tree(tmp_path, {"proc/cpuinfo": ALDER_LAKE})
    emulated = Host(architecture="aarch64")

    assert await pycpuinfo.complete(emulated, root=root, ask=failing(AssertionError("asked"))) is emulated


@pytest.mark.parametrize(
    "ask",
    [
        failing(FileNotFoundError("no such program")),
        failing(TimeoutError()),
        failing(ValueError("not JSON")),
        failing(RecursionError()),
        answering(None),
        answering(["brand_raw"]),
    ],
)
async def test_without_an_answer_the_host_stays(
    ask: Callable[[], Awaitable[object]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails leaves the host as it is and one line in the debug log."""
    caplog.set_level(logging.DEBUG, logger="aes_exporter.host.pycpuinfo")

    assert await pycpuinfo.complete(UNKNOWN, root=tmp_path, ask=ask) is UNKNOWN
    assert [(record.levelname, record.message) for record in caplog.records] == [("DEBUG", "py-cpuinfo gave no answer")]


@pytest.mark.parametrize("facts", [{}, {"brand_raw": None, "family": [6], "model": {"a": 1}, "vendor_id_raw": "\0"}])
async def test_an_odd_answer_adds_nothing(facts: object, tmp_path: Path) -> None:
    """Missing, null and misshapen values are no names."""
    assert await pycpuinfo.complete(UNKNOWN, root=tmp_path, ask=answering(facts)) == UNKNOWN


async def test_cancelling_is_not_a_failure(tmp_path: Path) -> None:
    """A cancelled start is passed on, not logged away."""
    with pytest.raises(asyncio.CancelledError):
        await pycpuinfo.complete(UNKNOWN, root=tmp_path, ask=failing(asyncio.CancelledError()))
