"""Settings of this host that keep its programs from using AES instructions.

Files below a root and the daemon's own environment in, Masks out. The files are read, never evaluated: a value that the
shell or PAM would have to compute is unknown, and what is unknown is not reported. Knows nothing of what is measured.
"""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from aes_exporter import capabilities
from aes_exporter.host import files
from aes_exporter.model import Mask

_LONGEST = 80  # characters of a value or place that are shown
_READ_LIMIT = 1 << 18  # characters of a file that are parsed

_X86_AES = 1 << 57
_X86_FXSR = 1 << 24  # clearing it clears AES-NI, PCLMULQDQ, XOP and AVX, too
_AES_BIT = {"aarch64": 1 << 2, "arm": 1 << 2, "ppc64": 1 << 2}  # ARMV8_AES, and CRYPTO207 of POWER

# The facility bit of all cipher instructions of IBM Z; the AES-128 functions of KM (ECB) and KMC (CBC).
_S390X_AES = {"stfle": 1 << 46, "km": 1 << 45, "kmc": 1 << 45}
_S390X_FUNCTIONS = frozenset(
    ("stfle", "kimd", "klmd", "km", "kmc", "kmac", "kmctr", "kmo", "kmf", "prno", "kma", "pcc", "kdsa")
)
_S390X_WITHOUT_AES = frozenset(("z900", "z990"))
_S390X_WITH_AES = frozenset(("z9", "z10", "z196", "zEC12", "z13", "z14", "z15", "z16", "z17"))

_NUMBER = re.compile(r"0[xX](?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]*)|(?P<decimal>[0-9]+)")
_BASES = {"hex": 16, "octal": 8, "decimal": 10}

_SHELL = re.compile(
    r"""(?P<comment>\#.*)
      | (?P<end>[\n;&|()]+)
      | (?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*+"|[^\s;&|()'"\\])++)""",
    re.VERBOSE,
)
_SHELL_KEYWORDS = ("if", "elif", "then", "else", "while", "until", "do", "{", "!", "builtin", "command")
_PAM_OPTION = re.compile(r'[ \t]+(DEFAULT|OVERRIDE)=(?:"([^"]*)"(?=[ \t]|$)|([^ \t"][^ \t]*))?')
_SYSTEMD_CONTINUATION = re.compile(r"\\\n(?:[ \t]*[#;].*\n)*")

_PRIORITY = ("etc", "run", "usr/local/lib", "usr/lib")  # where systemd looks, the directory that wins first
# The system manager's own ManagerEnvironment= is not inherited by what it starts, that of user managers is.
_SYSTEMD = (
    ("system.conf", "DefaultEnvironment"),
    ("user.conf", "DefaultEnvironment"),
    ("user.conf", "ManagerEnvironment"),
)

Parser = Callable[[str, str], Iterator[str | None]]
"""A file's text and a variable in, its assignments out, the one that counts last; None unsets it or is unknown."""


def find(root: Path = Path("/"), *, machine: str, environ: Mapping[str, str]) -> tuple[Mask, ...]:
    """Return the settings below `root` and in `environ` that switch AES off on architecture `machine`.

    Their places and values are printable and at most 80 characters long. Only the capability variable of that
    architecture counts. Takes a few milliseconds, starts no process; what cannot
    be read holds no setting.
    """
    variable = _variable(machine)
    return tuple(
        Mask(place=_shown(place), variable=variable, value=_shown(value))
        for place, value in (_settings(root, variable, environ) if variable else ())
        if value is not None and switches_aes_off(variable, value, machine)
    )


def _variable(machine: str) -> str:
    known = capabilities.ARCHITECTURES.get(capabilities.canonical(machine))
    return known.variable if known else ""


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])


# --- what a value does ------------------------------------------------------------------------------------------------


def switches_aes_off(variable: str, value: str, machine: str) -> bool:
    """Return whether OpenSSL does without AES instructions on architecture `machine` if `variable` has this value."""
    name = capabilities.canonical(machine)
    if not variable or variable != _variable(machine):
        return False
    if name in _AES_BIT:
        return not _strtoul(value, bits=32 if name == "arm" else 64) & _AES_BIT[name]
    return {"s390x": _off_on_s390x, "riscv64": _off_on_riscv}.get(name, _off_on_x86)(value)


def _off_on_x86(value: str) -> bool:
    """Judge the first of the colon-separated words; the others hold no bit that AES needs."""
    if value.startswith(":"):
        return False
    number = _number(value.removeprefix("~"), lambda total: total % (1 << 64))
    return bool(number & (_X86_AES | _X86_FXSR)) if value.startswith("~") else not number & _X86_AES


def _off_on_s390x(value: str) -> bool:
    """Go through the tokens, the later one counting. One that is malformed makes the library ignore them all."""
    on = dict.fromkeys(_S390X_AES, True)
    for token in value.split(";"):
        name, *words = map(str.strip, token.split(":", 3))
        masks = [re.match(r"(~?)(?:0[xX])?([0-9a-fA-F]+)", word) for word in words]
        if not words and name in _S390X_WITHOUT_AES | _S390X_WITH_AES:
            on = dict.fromkeys(on, name in _S390X_WITH_AES)
        elif name in _S390X_FUNCTIONS and len(masks) >= (1 if name == "stfle" else 2) and masks[0] and all(masks):
            if name in on:
                on[name] = bool(int(masks[0][2], 16) & _S390X_AES[name]) != bool(masks[0][1])
        elif words or name not in ("", "nocex"):
            return False
    return not all(on.values())


def _off_on_riscv(value: str) -> bool:
    """Look for the extensions as the library does: anywhere in its first 255 bytes, in any case, after "_"."""
    has = value[:255].upper().__contains__
    return not (has("_ZKND") and has("_ZKNE")) and not (has("_ZVKNED") and has("_V"))


def _strtoul(text: str, *, bits: int) -> int:
    """Read a number as C's strtoul with base 0 does: blanks and a sign before it, its largest value on overflow."""
    unsigned = text.lstrip(" \t\n\v\f\r")
    highest = (1 << bits) - 1
    number = _number(unsigned[1:] if unsigned[:1] in ("+", "-") else unsigned, lambda total: min(total, highest))
    return -number & highest if unsigned.startswith("-") and number < highest else number


def _number(text: str, fit: Callable[[int], int]) -> int:
    """Read the hexadecimal, octal or decimal number that `text` starts with, 0 without any, fitting it at each digit.

    Digit by digit, because int() refuses long decimal numbers.
    """
    match = _NUMBER.match(text)
    if match is None or match.lastgroup is None:
        return 0
    base = _BASES[match.lastgroup]
    return functools.reduce(lambda total, digit: fit(total * base + int(digit, 16)), match[match.lastgroup], 0)


# --- where values stand -----------------------------------------------------------------------------------------------


def _settings(root: Path, variable: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield the value in effect at each place that sets the variable, None where that is unset or unknown."""
    yield "the environment of this process", environ.get(variable)
    for paths, parse in _groups(root):
        assignments = [(path, value) for path in paths for value in parse(_text(path), variable)]
        for path, value in assignments[-1:]:
            yield f"/{path.relative_to(root)}", value


def _groups(root: Path) -> Iterator[tuple[Sequence[Path], Parser]]:
    """Yield files that make one environment together, the later ones overriding the earlier, and how to read them."""
    yield [root / "proc/1/environ"], _environ
    yield [root / "etc/environment"], _pam_environment
    yield [root / "etc/security/pam_env.conf"], _pam_conf
    for path in (root / "etc/profile", *_listed(root / "etc/profile.d", ".sh")):
        yield [path], _shell
    yield _drop_ins(root, "environment.d"), _environment_d
    for name, key in _SYSTEMD:
        main = [path for path in _drop_ins(root, "systemd") if path.name == name]
        yield [*main, *_drop_ins(root, f"systemd/{name}.d")], functools.partial(_systemd, key)


def _drop_ins(root: Path, name: str) -> list[Path]:
    """Return *.conf in the order of their names; one hides those of its name in directories of lower priority."""
    listings = [_listed(root / directory / name, ".conf") for directory in reversed(_PRIORITY)]
    return [path for _, path in sorted({path.name: path for path in itertools.chain(*listings)}.items())]


def _listed(directory: Path, suffix: str) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.name.endswith(suffix))
    except OSError:
        return []


def _text(path: Path) -> str:
    """Return the start of a regular file, "" of anything else: opening a pipe could block."""
    try:
        return files.text(path)[:_READ_LIMIT] if path.is_file() else ""
    except OSError:
        return ""


# --- how the places spell them ----------------------------------------------------------------------------------------


def _environ(text: str, variable: str) -> Iterator[str | None]:
    """Read an environment block, where the first assignment is the one that getenv finds."""
    pairs = (pair.partition("=") for pair in text.split("\0"))
    yield from [value for name, equals, value in pairs if equals and name == variable][:1]


def _pam_lines(text: str) -> Iterable[str]:
    return re.sub(r"\\[ \t]*\n", "", re.sub(r"#.*", "", text)).split("\n")


def _pam_environment(text: str, variable: str) -> Iterator[str | None]:
    """Read /etc/environment as pam_env does: no expansion, one pair of quotes around the value, a bare name unsets."""
    for line in _pam_lines(text):
        name, equals, value = line.lstrip(" \t").removeprefix("export ").partition("=")
        if value.startswith(("'", '"')):
            value = value[1:-1] if value[1:].endswith(("'", '"')) else value[1:]
        if name == variable:
            yield value if equals else None


def _pam_conf(text: str, variable: str) -> Iterator[str | None]:
    """Read pam_env.conf: an OVERRIDE= that is not empty, else DEFAULT=; unset without either, empty with `""`."""
    for line in _pam_lines(text):
        options = {option[1]: option[2] if option[3] is None else option[3] for option in _PAM_OPTION.finditer(line)}
        rest = _PAM_OPTION.sub("", line).rstrip(" \t")
        if rest == variable:  # otherwise another variable, or a line that pam_env refuses
            value = options.get("OVERRIDE") or options.get("DEFAULT")
            yield None if value is None or re.search(r"[$@]\{|\\", value) else value


def _shell(text: str, variable: str) -> Iterator[str | None]:
    """Read assignments and exports, whatever conditions they stand under. What is never exported reaches no program."""
    exported, value = False, None
    for verb, words in _commands(text) if variable in text else ():
        for word in words:
            name, equals, _ = word.partition("=")
            if name.lstrip("'\"") != variable:
                continue
            exported = verb == "export" or (exported and verb == "assign")
            if equals or verb == "unset":
                value = _plain(word, after="=") if verb != "unset" else None
    if exported:
        yield value


def _commands(text: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what each simple command does to variables ("assign", "export" or "unset") and the words it does it to."""
    words: list[str] = []
    for token in _SHELL.finditer(text.replace("\\\n", "") + "\n"):
        if token["word"]:
            words.append(token["word"])
        elif token["end"]:
            yield _command(list(itertools.dropwhile(_SHELL_KEYWORDS.__contains__, words)))
            words = []


def _command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    if all("=" in word for word in words):
        return "assign", words
    head, *arguments = words
    flags = "".join(word for word in arguments if word.startswith("-"))
    if head in ("declare", "typeset", "readonly"):
        return "export" if "x" in flags else "assign", arguments
    if head in ("export", "unset"):
        return "unset" if "n" in flags else head, arguments
    return "", ()


def _plain(text: str, *, after: str = "") -> str | None:
    """Return text without its quotes, or what follows `after` in it; None if it would have to be computed."""
    if re.search(r"[$`]", text):
        return None
    try:
        unquoted = " ".join(shlex.split(text))
    except ValueError:
        return None
    return unquoted.partition(after)[2] if after else unquoted


def _systemd_lines(text: str) -> Iterator[str]:
    lines = (line.strip() for line in _SYSTEMD_CONTINUATION.sub(" ", text).split("\n"))
    return (line for line in lines if not line.startswith(("#", ";")))


def _environment_d(text: str, variable: str) -> Iterator[str | None]:
    for line in _systemd_lines(text):
        name, equals, value = line.partition("=")
        if equals and name.strip() == variable:
            yield _plain(value)


def _systemd(key: str, text: str, variable: str) -> Iterator[str | None]:
    """Read a manager's configuration: several assignments after a key, an empty one takes all earlier ones back."""
    section = ""
    for line in _systemd_lines(text):
        name, equals, value = line.partition("=")
        if line.startswith("["):
            section = line
        elif section == "[Manager]" and equals and name.strip() == key:
            yield from _systemd_assignments(value.strip(), variable)


def _systemd_assignments(value: str, variable: str) -> Iterator[str | None]:
    if not value:
        yield None
    elif variable in value:
        try:
            pairs = [word.partition("=") for word in shlex.split(value)]
        except ValueError:  # systemd, too, ignores a line with a quote that is never closed
            return
        yield from (None if "%" in setting else setting for name, _, setting in pairs if name == variable)
