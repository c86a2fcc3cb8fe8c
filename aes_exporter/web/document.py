"""YAML text -> a tree of values that know their place in the file, so that every refusal names file, line and key.

The only file that knows the YAML library. A scalar is the text as it was written: `1`, `yes` and `"1"` are what the key
they belong to takes them for. No refusal repeats a value that may be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import yaml

from aes_exporter.notation import shown

_SWITCH = {"true": True, "yes": True, "on": True, "y": True, "false": False, "no": False, "off": False, "n": False}


class WebConfigError(Exception):
    """A web config cannot be used. The message is one line that begins with the file and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Something in the file: its YAML node, None for an empty file, and its name, as in `tls_server_config.key`."""

    file: str
    name: str
    node: yaml.Node | None

    def refusal(self, what: str) -> WebConfigError:
        """Return the error that says what is wrong with this value."""
        place = self.file if self.node is None else f"{self.file}:{self.node.start_mark.line + 1}"
        return WebConfigError(f"{place}: {self.name}: {what}" if self.name else f"{place}: {what}")

    @property
    def blank(self) -> bool:
        """Whether nothing was written, or nothing between quotes: as good as no key at all."""
        return self.node is None or self.node.tag == "tag:yaml.org,2002:null" or self.node.value == ""

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.refusal("expected text")
        return str(self.node.value)

    def switch(self) -> bool:
        answer = _SWITCH.get(self.text().lower())
        if answer is None:
            raise self.refusal("expected true or false")
        return answer

    def choice(self, choices: Collection[str]) -> str:
        if self.text() not in choices:
            raise self.refusal(f"expected one of {', '.join(choices)}, got {shown(self.text())}")
        return self.text()

    def items(self) -> list[Value]:
        """Return the values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refusal("expected a list")
        return [Value(file=self.file, name=self.name, node=node) for node in self.node.value]

    def fields(self, known: Collection[str]) -> dict[str, Value]:
        """Return the values of a mapping by key, without the blank ones; any key that is not `known` is refused."""
        return {key: value for key, value in self.entries(known) if not value.blank}

    def entries(self, known: Collection[str] | None = None) -> Iterator[tuple[str, Value]]:
        """Yield keys and values of a mapping in their order; a key that comes twice is refused."""
        if self.blank:
            return
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refusal("expected keys and values")
        seen = set()
        for node, content in self.node.value:
            key = Value(file=self.file, name=self.name, node=node)
            if known is not None and key.text() not in known:
                raise key.refusal(f"unknown key {shown(key.text())}{_near(key.text(), known)}")
            if key.text() in seen:
                raise key.refusal("the same key twice")
            seen.add(key.text())
            name = key.text() if known is not None else ""  # else a user's name, or a secret in its place
            yield key.text(), Value(file=self.file, name=".".join(filter(None, (self.name, name))), node=content)


def parse(content: bytes, file: str) -> Value:
    """Return the whole document. Raises WebConfigError, with the line, where it is no YAML."""
    try:
        return Value(file=file, name="", node=yaml.compose(content, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = "" if isinstance(error, yaml.composer.ComposerError) else f": {error.problem}"  # repeats what it read
        raise WebConfigError(f"{file}{line}: not a YAML document{what}") from None
    except (yaml.YAMLError, RecursionError):
        raise WebConfigError(f"{file}: not a YAML document") from None


def _near(key: str, known: Collection[str]) -> str:
    return "".join(f"; did you mean {other}?" for other in difflib.get_close_matches(key, known, n=1))
