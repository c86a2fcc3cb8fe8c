"""Settings that switch AES off: what each value does, and every place and spelling in which one can hide."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aes_exporter.capabilities import ARCHITECTURES, VARIABLES
from aes_exporter.host.masks import find, switches_aes_off
from aes_exporter.model import Mask

IA32, ARM, PPC = "OPENSSL_ia32cap", "OPENSSL_armcap", "OPENSSL_ppccap"
S390X, RISCV = "OPENSSL_s390xcap", "OPENSSL_riscvcap"
OFF = "~0x200000200000000"
ON = "~0x20"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def found(root: Path, environ: Mapping[str, str] | None = None, machine: str = "x86_64") -> list[tuple[str, str]]:
    return [(mask.place, mask.value) for mask in find(root, machine=machine, environ=environ or {})]


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "~0x200000200000000",
        "~0x0200000000000000",
        "~0X200000000000000",
        "~144115188075855872",
        "~010000000000000000000",
        "~0x200000200000000:~0:~0:~0:~0",
        "~0x200000000000000garbage",
        "~0x1000000",  # FXSR takes AES-NI along
        "~16777216",
        "~0100000000",
        "~0xffffffffffffffff",
        "~0xff0200000000000000",  # the library counts modulo 2^64
        "0",
        "0x400",
        "0xfdffffffffffffff:0",
        "0:~0",
        "",
        " ",
        " ~0x20",
        "bogus",
        "0x",
        "0xg200000000000000",
        "08",
        "-1",
        "+0xffffffffffffffff",
        "200000000000000",  # decimal, and not the bit it looks like
        "1" * 5000,
    ],
)
def test_values_that_switch_aes_off_on_x86(value: str) -> None:
    """Clearing AES-NI or FXSR, replacing the words by some without AES-NI, and all that is no number switch it off."""
    assert switches_aes_off(IA32, value, "x86_64")
    assert switches_aes_off(IA32, value, "i686")


@pytest.mark.parametrize(
    "value",
    [
        "~0",
        "~",
        "~~0x200000000000000",
        "~ 0x200000000000000",
        "~bogus",
        "~0x20",
        "~0x200000000",  # PCLMULQDQ alone
        "~09",
        "~0:~0x200000000000000",  # the bit, but of the second word
        ":",
        ":~0",
        ":0:0",
        "0x200000000000000",
        "0x200000000000000:0",
        "144115188075855872",
        "010000000000000000000",
        "0xffffffffffffffff",
    ],
)
def test_values_that_leave_aes_on_on_x86(value: str) -> None:
    """Other bits, other words and a word that is left alone do not touch AES-NI."""
    assert not switches_aes_off(IA32, value, "x86_64")
    assert not switches_aes_off(IA32, value, "x86")


@pytest.mark.parametrize(
    ("variable", "machine", "value", "off"),
    [
        (ARM, "aarch64", "0", True),
        (ARM, "aarch64", "", True),
        (ARM, "aarch64", "bogus", True),
        (ARM, "aarch64", "~0x24", True),
        (ARM, "aarch64", "0x1", True),
        (ARM, "aarch64", "0xfb", True),
        (ARM, "aarch64", "0x4", False),
        (ARM, "aarch64", "  +0x7d", False),
        (ARM, "aarch64", "04", False),
        (ARM, "aarch64", "09", True),
        (ARM, "aarch64", "4", False),
        (ARM, "aarch64", "-1", False),
        (ARM, "aarch64", "-4", False),
        (ARM, "aarch64", "-5", True),
        (ARM, "aarch64", "0x100000000", True),
        (ARM, "arm64", "0x100000000", True),
        (ARM, "armv7l", "0x100000000", False),  # more than an unsigned long there, which strtoul fills up
        (ARM, "aarch64", "0x10000000000000000", False),
        (ARM, "aarch64", "-0x10000000000000000", False),
        (ARM, "aarch64", "9" * 5000, False),
        (ARM, "arm", "0x5", False),
        (PPC, "ppc64le", "0x4", False),
        (PPC, "ppc64", "0x2", True),
        (PPC, "ppc64", "~0x4", True),
    ],
)
def test_arm_and_power_replace_the_word(variable: str, machine: str, value: str, off: bool) -> None:
    """There the value is what strtoul makes of it, and a tilde makes it 0."""
    assert switches_aes_off(variable, value, machine) is off


@pytest.mark.parametrize(
    ("value", "off"),
    [
        ("", False),
        (";; ;", False),
        ("z900", True),
        ("z990", True),
        (" z900 ;", True),
        ("z9", False),
        ("z17", False),
        ("z900;z13", False),
        ("z13;z900", True),
        ("nocex", False),
        ("km:~0x380000002800:~0x280000000000;kmc:~0x380000000000:~0", True),
        ("km:~0x380000002800:~0x280000000000", True),
        ("kmc : 0 : 0", True),
        ("kmc:~0:~0", False),
        ("kmc:0x200000000000:0", False),
        ("kma:0:0", False),
        ("stfle:0:0:0", True),
        ("stfle:~0:~0:~0", False),
        ("stfle:0x400000000000", False),
        ("z900;kmc:~0:~0;km:~0:~0;stfle:~0:0:0", False),
        ("kmc:0", False),
        ("kmc:zero:0", False),
        ("z900;bogus", False),
        ("z900;z13:0", False),
        ("Z900", False),
    ],
)
def test_ibm_z_adds_up_tokens(value: str, off: bool) -> None:
    """Generations and functions of IBM Z are taken in turn, and one malformed token makes the library ignore all."""
    assert switches_aes_off(S390X, value, "s390x") is off


@pytest.mark.parametrize(
    ("value", "off"),
    [
        ("", True),
        ("rv64gc", True),
        ("rv64gc_zkne", True),
        ("rv64gc_zkne_zknd", False),
        ("RV64GC_ZKNE_ZKND", False),
        ("zkne_zknd", True),
        ("rv64gc_zvkned", True),
        ("rv64gc_v_zvkned", False),
        (f"rv64gc_zkne{'_zba' * 80}_zknd", True),
    ],
)
def test_riscv_lists_what_there_is(value: str, off: bool) -> None:
    """RISC-V needs both scalar extensions or the vector one with vectors, each after an underscore, in 255 bytes."""
    assert switches_aes_off(RISCV, value, "riscv64") is off


@pytest.mark.parametrize("machine", [*ARCHITECTURES, "mips64", "sparc64", ""])
@pytest.mark.parametrize("variable", [*VARIABLES, "OPENSSL_loongarchcap", "openssl_ia32cap", ""])
def test_only_the_variable_of_the_architecture_counts(variable: str, machine: str) -> None:
    """A variable of another architecture does nothing; LoongArch has none."""
    own = machine in ARCHITECTURES and variable == ARCHITECTURES[machine].variable != ""

    assert switches_aes_off(variable, "z900" if variable == S390X else "0", machine) is own


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_clean_host_has_no_masks(tmp_path: Path) -> None:
    """Nothing is found where there are no files, and in files without the variable."""
    assert found(tmp_path, {"PATH": "/bin", "OPENSSL_CONF": "/x"}) == []
    assert found(tree(tmp_path, {"etc/environment": "PATH=/bin\n", "etc/profile": "export PATH=/bin\n"})) == []


def test_every_place_is_looked_at(tmp_path: Path) -> None:
    """All places are found, each by its own name, in a fixed order."""
    setting = f"{IA32}={OFF}\n"
    manager = f"[Manager]\nDefaultEnvironment={setting}"
    files = {
        "proc/1/environ": f"HOME=/\0{IA32}={OFF}\0",
        "etc/environment": setting,
        "etc/security/pam_env.conf": f"{IA32} DEFAULT={OFF}\n",
        "etc/profile": f"export {setting}",
        "etc/profile.d/aes.sh": f"export {setting}",
        "etc/environment.d/50-aes.conf": setting,
        "etc/systemd/system.conf": manager,
        "etc/systemd/user.conf": manager + f"ManagerEnvironment={setting}",
    }

    assert found(tree(tmp_path, files), {IA32: OFF}) == [
        ("the environment of this process", OFF),
        ("/proc/1/environ", OFF),
        ("/etc/environment", OFF),
        ("/etc/security/pam_env.conf", OFF),
        ("/etc/profile", OFF),
        ("/etc/profile.d/aes.sh", OFF),
        ("/etc/environment.d/50-aes.conf", OFF),
        ("/etc/systemd/system.conf", OFF),
        ("/etc/systemd/user.conf", OFF),
        ("/etc/systemd/user.conf", OFF),
    ]


def test_masks_of_other_architectures_are_none(tmp_path: Path) -> None:
    """What masks x86 is nothing to an ARM machine, and the other way round."""
    root = tree(tmp_path, {"etc/environment": f"{IA32}={OFF}\n{ARM}=0\n"})

    assert find(root, machine="aarch64", environ={}) == (Mask(place="/etc/environment", variable=ARM, value="0"),)
    assert found(root) == [("/etc/environment", OFF)]
    assert found(root, machine="loongarch64") == []
    assert found(root, machine="mips") == []


PAM = [
    (f"{IA32}={OFF}", OFF),
    (f"{IA32}=", ""),
    (f"{IA32}= {OFF}", f" {OFF}"),
    (f'{IA32}="{OFF}"', OFF),
    (f"{IA32}='{OFF}'", OFF),
    (f'{IA32}=""', ""),
    (f'{IA32}="', ""),
    (f'{IA32}="{OFF}', OFF),
    (f"  export {IA32}={OFF}  # slow", f"{OFF}  "),
    (f"{IA32}=bogus", "bogus"),
    (f"{IA32}=$OTHER", "$OTHER"),  # pam_env expands nothing here, so this is what programs get
    (f"{IA32}={ON}\n{IA32}={OFF}", OFF),
    (f"{IA32}=~0x2\\\n00000000000000", "~0x200000000000000"),
    (f"{IA32}={OFF}\n{IA32}={ON}", None),
    (f"{IA32}={OFF}\n{IA32}", None),
    (f"#{IA32}={OFF}", None),
    (f"# \\\n{IA32}={OFF}", OFF),
    (f"{IA32} ={OFF}", None),
    (f"export  {IA32}={OFF}", None),
    (f"MY_{IA32}={OFF}", None),
    (f"{IA32}={ON}", None),
]


@pytest.mark.parametrize(("text", "value"), PAM)
def test_etc_environment_is_read_as_pam_does(tmp_path: Path, text: str, value: str | None) -> None:
    """Quotes, comments, continued lines, exports and bare names mean in /etc/environment what they mean to pam_env."""
    expected = [] if value is None else [("/etc/environment", value)]

    assert found(tree(tmp_path, {"etc/environment": f"{text}\n"})) == expected


PAM_CONF = [
    (f"{IA32} DEFAULT={OFF}", OFF),
    (f'{IA32}\tDEFAULT="{OFF}"', OFF),
    (f'{IA32} DEFAULT=""', ""),
    (f"{IA32} DEFAULT={ON} OVERRIDE={OFF}", OFF),
    (f"{IA32} OVERRIDE={OFF} \\\n DEFAULT={ON}", OFF),
    (f'{IA32} DEFAULT={OFF} OVERRIDE=""', OFF),
    (f"{IA32} DEFAULT={OFF} OVERRIDE=", OFF),
    (f"{IA32} DEFAULT={OFF} OVERRIDE={ON}", None),
    (f"{IA32} DEFAULT=", None),
    (f"{IA32}", None),
    (f"{IA32} DEFAULT={OFF}\n{IA32} DEFAULT=", None),
    (f"{IA32} DEFAULT=${{MASK}}", None),
    (f"{IA32} DEFAULT={OFF} OVERRIDE=@{{PAM_USER}}", None),
    (f"{IA32} DEFAULT={OFF} junk", None),
    (f'{IA32} DEFAULT="{OFF}"junk', None),
    (f'{IA32} DEFAULT="{OFF}', None),
    (f"#{IA32} DEFAULT={OFF}", None),
    (f"{IA32}={OFF}", None),
]


@pytest.mark.parametrize(("text", "value"), PAM_CONF)
def test_pam_env_conf_has_defaults_and_overrides(tmp_path: Path, text: str, value: str | None) -> None:
    """An override that is not empty wins; lines that PAM refuses or has to expand hold no known setting."""
    expected = [] if value is None else [("/etc/security/pam_env.conf", value)]

    assert found(tree(tmp_path, {"etc/security/pam_env.conf": f"{text}\n"})) == expected


SHELL = [
    (f"export {IA32}={OFF}", OFF),
    (f"export {IA32}=", ""),
    (f"export {IA32}=''", ""),
    (f'export PATH {IA32}="{OFF}" LANG=C', OFF),
    (f"export '{IA32}={OFF}'", OFF),
    (f"{IA32}={OFF}\nexport {IA32}", OFF),
    (f"{IA32}={OFF} LANG=C; export {IA32}", OFF),
    (f"export {IA32}; {IA32}={OFF}", OFF),
    (f"declare -x {IA32}={OFF}", OFF),
    (f"typeset -gx {IA32}={OFF}", OFF),
    (f"declare {IA32}={OFF}; export {IA32}", OFF),
    (f"export {IA32}=\\\n{OFF}", OFF),
    (f"export {IA32}={OFF} # why", OFF),
    (f"export X=a#b {IA32}={OFF}", OFF),
    (f'export X="a # b\nc"; export {IA32}={OFF}', OFF),
    (f'if [ -n "$X" ]; then export {IA32}={OFF}; fi', OFF),
    (f"[ -x /bin/x ] && export {IA32}={OFF}", OFF),
    (f"f() {{ export {IA32}={OFF}; }}", OFF),
    (f"case $(uname -m) in x86_64) export {IA32}={OFF};; esac", OFF),
    (f'echo "it\'s"\nexport {IA32}={OFF}', OFF),
    (f"echo it's\nexport {IA32}={OFF}", OFF),
    (f"export {IA32}={ON}\nexport {IA32}={OFF}", OFF),
    (f"export {IA32}={OFF}\nexport {IA32}={ON}", None),
    (f"export {IA32}={OFF}\n{IA32}={ON}", None),
    (f"export {IA32}={OFF}\nunset {IA32}", None),
    (f"export {IA32}={OFF}\nexport -n {IA32}", None),
    (f"unset {IA32}; export {IA32}", None),
    (f"{IA32}={OFF}", None),
    (f"{IA32}={OFF} make check", None),
    (f"# export {IA32}={OFF}", None),
    (f"echo 'export {IA32}={OFF}'", None),
    (f"export {IA32}=$MASK", None),
    (f'export {IA32}="${{{IA32}:-{OFF}}}"', None),
    (f"export {IA32}=`mask`", None),
    (f"export {IA32}=$(mask)", None),
    (f"export {IA32}={OFF}\nexport {IA32}=$MASK", None),
    (f"export MY_{IA32}={OFF}", None),
]


@pytest.mark.parametrize(("text", "value"), SHELL)
@pytest.mark.parametrize("place", ["etc/profile", "etc/profile.d/aes.sh"])
def test_profiles_are_read_and_not_run(tmp_path: Path, place: str, text: str, value: str | None) -> None:
    """The last assignment of a variable that is exported counts; what a shell would have to compute is unknown."""
    expected = [] if value is None else [(f"/{place}", value)]

    assert found(tree(tmp_path, {place: f"{text}\n"})) == expected


def test_only_shell_files_of_profile_d_are_read(tmp_path: Path) -> None:
    """Shells source *.sh there, in the order of their names, and nothing else."""
    files = {f"etc/profile.d/{name}": f"export {IA32}={OFF}\n" for name in ("b.sh", "a.sh", "c.csh", "d.sh.dpkg-old")}

    assert found(tree(tmp_path, files)) == [("/etc/profile.d/a.sh", OFF), ("/etc/profile.d/b.sh", OFF)]


ENVIRONMENT_D = [
    (f"{IA32}={OFF}", OFF),
    (f"  {IA32} = {OFF}  ", OFF),
    (f'{IA32}="{OFF}"', OFF),
    (f"{IA32}=", ""),
    (f"{IA32}='", None),
    (f"{IA32}=${{MASK:-{OFF}}}", None),
    (f"# {IA32}={OFF}", None),
    (f"; {IA32}={OFF}", None),
    (f"{IA32}", None),
    (f"{IA32}={OFF}\n{IA32}={ON}", None),
]


@pytest.mark.parametrize(("text", "value"), ENVIRONMENT_D)
def test_environment_d_holds_assignments(tmp_path: Path, text: str, value: str | None) -> None:
    """Lines of environment.d may be quoted; what refers to other variables is unknown."""
    expected = [] if value is None else [("/etc/environment.d/aes.conf", value)]

    assert found(tree(tmp_path, {"etc/environment.d/aes.conf": f"{text}\n"})) == expected


SYSTEMD = [
    (f"[Manager]\nDefaultEnvironment={IA32}={OFF}", OFF),
    (f"[Manager]\n DefaultEnvironment = {IA32}={OFF} ", OFF),
    (f'[Manager]\nDefaultEnvironment="A=b c" "{IA32}={OFF}" D=e', OFF),
    (f"[Manager]\nDefaultEnvironment='{IA32}='", ""),
    (f"[Manager]\nDefaultEnvironment=A=b \\\n# why\n; not\n  {IA32}={OFF}", OFF),
    (f"[Manager]\nDefaultEnvironment={IA32}={OFF}\nDefaultEnvironment=A=b", OFF),
    (f"[Manager]\nDefaultEnvironment=\nDefaultEnvironment={IA32}={OFF}", OFF),
    (f"[Manager]\nDefaultEnvironment={IA32}={OFF}\nDefaultEnvironment=", None),
    (f"[Manager]\nDefaultEnvironment={IA32}={OFF} {IA32}={ON}", None),
    (f"[Manager]\nDefaultEnvironment={IA32}=%m", None),
    (f'[Manager]\nDefaultEnvironment="{IA32}={OFF}', None),
    (f"[Manager]\n#DefaultEnvironment={IA32}={OFF}", None),
    (f"[Manager]\nDefaultEnvironment{IA32}={OFF}", None),
    (f"[Other]\nDefaultEnvironment={IA32}={OFF}", None),
    (f"DefaultEnvironment={IA32}={OFF}", None),
    (f"[Manager]\nPassEnvironment={IA32}={OFF}", None),
]


@pytest.mark.parametrize(("text", "value"), SYSTEMD)
@pytest.mark.parametrize("name", ["system.conf", "user.conf"])
def test_managers_have_default_environments(tmp_path: Path, name: str, text: str, value: str | None) -> None:
    """Several assignments on a line, quotes, continued lines and an empty reset mean what they mean to systemd."""
    expected = [] if value is None else [(f"/etc/systemd/{name}", value)]

    assert found(tree(tmp_path, {f"etc/systemd/{name}": f"{text}\n"})) == expected


def test_only_user_managers_pass_their_own_environment_on(tmp_path: Path) -> None:
    """ManagerEnvironment= of the system manager reaches no program, that of user managers does."""
    text = f"[Manager]\nManagerEnvironment={IA32}={OFF}\n"

    assert found(tree(tmp_path, {"etc/systemd/system.conf": text, "etc/systemd/user.conf": text})) == [
        ("/etc/systemd/user.conf", OFF)
    ]


def manager(value: str) -> str:
    return f"[Manager]\nDefaultEnvironment={value}\n"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"usr/lib/systemd/system.conf": manager(f"{IA32}={OFF}")}, "/usr/lib/systemd/system.conf"),
        ({"run/systemd/system.conf.d/a.conf": manager(f"{IA32}={OFF}")}, "/run/systemd/system.conf.d/a.conf"),
        (
            {"usr/local/lib/systemd/system.conf.d/a.conf": manager(f"{IA32}={OFF}")},
            "/usr/local/lib/systemd/system.conf.d/a.conf",
        ),
        (
            {
                "etc/systemd/system.conf": manager(f"{IA32}={ON}"),
                "usr/lib/systemd/system.conf.d/a.conf": manager(f"{IA32}={OFF}"),
            },
            "/usr/lib/systemd/system.conf.d/a.conf",
        ),
        ({"etc/systemd/system.conf": "", "usr/lib/systemd/system.conf": manager(f"{IA32}={OFF}")}, None),
        (
            {
                "etc/systemd/system.conf": manager(f"{IA32}={OFF}"),
                "etc/systemd/system.conf.d/a.conf": manager(""),
            },
            None,
        ),
        (
            {
                "usr/lib/systemd/system.conf.d/50.conf": manager(f"{IA32}={OFF}"),
                "etc/systemd/system.conf.d/10.conf": manager(f"{IA32}={ON}"),
            },
            "/usr/lib/systemd/system.conf.d/50.conf",
        ),
        (
            {
                "usr/lib/systemd/system.conf.d/50.conf": manager(f"{IA32}={OFF}"),
                "etc/systemd/system.conf.d/50.conf": "",
            },
            None,
        ),
        ({"etc/systemd/system.conf.d/50.txt": manager(f"{IA32}={OFF}")}, None),
        (
            {
                "usr/lib/environment.d/50.conf": f"{IA32}={ON}\n",
                "etc/environment.d/60.conf": f"{IA32}={OFF}\n",
                "run/environment.d/60.conf": f"{IA32}={ON}\n",
            },
            "/etc/environment.d/60.conf",
        ),
    ],
)
def test_drop_ins_override_each_other(tmp_path: Path, files: Mapping[str, str], place: str | None) -> None:
    """Drop-ins follow the main file in the order of their names, and /etc hides /run and /usr; the winner is named."""
    assert found(tree(tmp_path, files)) == ([] if place is None else [(place, OFF)])


def test_a_drop_in_that_is_a_device_hides_the_others(tmp_path: Path) -> None:
    """Linking a drop-in to /dev/null is how administrators switch one of the distribution off."""
    root = tree(tmp_path, {"usr/lib/systemd/system.conf.d/50.conf": manager(f"{IA32}={OFF}")})
    (root / "etc/systemd/system.conf.d").mkdir(parents=True)
    (root / "etc/systemd/system.conf.d/50.conf").symlink_to("/dev/null")

    assert found(root) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{IA32}={OFF}\0", OFF),
        (f"A=b\0{IA32}=", ""),
        (f"{IA32}={OFF}\0{IA32}={ON}\0", OFF),
        (f"{IA32}={ON}\0{IA32}={OFF}\0", None),
        (f"A=\n{IA32}={OFF}\0", None),
        (f"{IA32}\0", None),
    ],
)
def test_the_first_process_has_an_environment_block(tmp_path: Path, text: str, value: str | None) -> None:
    """The block is separated by NUL, and getenv finds the first of two settings."""
    expected = [] if value is None else [("/proc/1/environ", value)]

    assert found(tree(tmp_path, {"proc/1/environ": text})) == expected


@pytest.mark.parametrize(("value", "masked"), [(OFF, True), ("", True), ("bogus", True), (ON, False)])
def test_the_environment_of_the_daemon_counts(tmp_path: Path, value: str, masked: bool) -> None:
    """The daemon's own variable is reported where it switches AES off, also by being empty."""
    assert found(tmp_path, {IA32: value}) == ([("the environment of this process", value)] if masked else [])


def test_values_and_places_are_fit_to_be_shown(tmp_path: Path) -> None:
    """Control characters and undecodable bytes become question marks, and long values are cut."""
    root = tree(tmp_path, {"etc/profile.d/a\nb.sh": f"export {IA32}=0\n"})

    assert found(root, {IA32: "0\n\x1b\udc80" + "x" * 500}) == [
        ("the environment of this process", "0???" + "x" * 76),
        ("/etc/profile.d/a?b.sh", "0"),
    ]


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    """A pipe would block its reader, and a directory, a loop of links or a dead link cannot be read: none raises."""
    profiles = tmp_path / "etc/profile.d"
    profiles.mkdir(parents=True)
    os.mkfifo(profiles / "pipe.sh")
    (profiles / "directory.sh").mkdir()
    (profiles / "loop.sh").symlink_to("loop.sh")
    (profiles / "dead.sh").symlink_to("nowhere")
    (tmp_path / "etc/environment.d").write_text("a file where a directory should be")
    (profiles / "good.sh").write_text(f"export {IA32}={OFF}")

    assert found(tmp_path) == [("/etc/profile.d/good.sh", OFF)]


# --- fuzz -------------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *VARIABLES,
        "=",
        OFF,
        ON,
        "0",
        "~",
        ":",
        ";",
        '"',
        "'",
        "\\",
        "\n",
        " ",
        "#",
        "$",
        "`",
        "%",
        "\x00",
        "export ",
        "unset ",
        "declare -x ",
        "DEFAULT=",
        "OVERRIDE=",
        "[Manager]\n",
        "DefaultEnvironment=",
        "km:",
        "z900",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=100),
    st.binary(max_size=100).map(lambda data: data.decode(errors="surrogateescape")),
    st.lists(PIECES, max_size=25).map("".join),
)
PLACES = (
    "proc/1/environ",
    "etc/environment",
    "etc/security/pam_env.conf",
    "etc/profile",
    "etc/profile.d/a.sh",
    "etc/environment.d/a.conf",
    "etc/systemd/system.conf",
    "usr/lib/systemd/user.conf.d/a.conf",
)


@given(TEXTS, st.sampled_from([*ARCHITECTURES, "armv7l", "mips"]))
def test_no_value_raises(value: str, machine: str) -> None:
    """Whatever the value, it switches AES off or not, and it does so for the variable of the architecture alone."""
    judged = [switches_aes_off(variable, value, machine) for variable in VARIABLES]

    assert sum(judged) <= 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(PLACES, TEXTS)), st.sampled_from(list(ARCHITECTURES)))
def test_no_text_raises(tmp_path: Path, files: dict[str, str], machine: str) -> None:
    """Whatever the files say, masks are of this architecture, printable and short."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogatepass"))

    for mask in find(tmp_path, machine=machine, environ=dict.fromkeys(VARIABLES, files["etc/profile"])):
        assert mask.variable == ARCHITECTURES[machine].variable
        assert mask.value.isprintable()
        assert max(len(mask.place), len(mask.value)) <= 80
