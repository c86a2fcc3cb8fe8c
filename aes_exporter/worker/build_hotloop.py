"""Build-time only: how setuptools compiles hotloop.c into a plain shared object and tags the wheel by what is in it.

Named in pyproject.toml as command classes. A missing compiler does not fail the build: the wheel then carries no shared
object, is tagged py3-none-any, and the libcrypto engine says what is missing.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class BuildHotloop(build_ext):
    """Compile without the Python API: the same file serves every Python, so its name carries no Python tag."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"


class Wheel(bdist_wheel):
    """Tag the wheel py3-none-PLATFORM with the shared object in it, py3-none-any without."""

    def run(self) -> None:
        self.run_command("build")
        built = self.get_finalized_command("build_ext").get_outputs()
        self.root_is_pure = not any(Path(output).exists() for output in built)
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", "any" if self.root_is_pure else platform
