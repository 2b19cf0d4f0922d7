"""The C compiler: its name, the machine that it compiles for, and its results."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from platform import machine

from search_space.scratch import ScratchFolder
from targets.base import BuildError

STANDARD = ("-std=c99", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
"""Options of every kernel. Results depend on them only by the rounding between a product and a sum.

-O3 splits loops over vectors before it vectorises them: a matrix product runs ten times as fast with -O2.
"""
LIBRARY = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic")
_NAME = re.compile(r"([\w.+]+-)*(cc|gcc|clang|c99)(-[\d.]+)?")
_OPTION = re.compile(r"-m[\w.=+-]+")
_SECONDS = 300.0  # after which a compiler that hangs is ended


def is_here(triple: str) -> bool:
    """Tells whether code for a machine, such as `x86_64-linux-gnu`, runs on this host."""
    theirs = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(theirs, theirs) == machine()


@dataclass(frozen=True)
class Compiler:
    """A compiler that takes the options of GCC.

    Attributes:
        name: name of its program.
        options: options of the machine, each of them `-m...`; empty for the host's own with `cc`, and for the
            compiler's default with others.
    """

    name: str = "cc"
    options: tuple[str, ...] = ()

    @staticmethod
    def of(text: str) -> Compiler:
        """Parses a command line that names a compiler.

        Raises:
            ValueError: an invalid name, or an option that is not of the machine.
        """
        words = shlex.split(text) or ["cc"]
        if not _NAME.fullmatch(words[0]):
            raise ValueError(f"`c:COMPILER` must name a program such as aarch64-linux-gnu-gcc, but got {words[0]!r}")
        for option in words[1:]:
            if not _OPTION.fullmatch(option):
                raise ValueError(f"options of `c:COMPILER` must be of the machine (-m...), but got {option!r}")
        return Compiler(words[0], tuple(words[1:]))

    @property
    def missing(self) -> str:
        """Sentence that says why the compiler cannot be used; empty if it can."""
        if shutil.which(self.name):
            return ""
        return f"the compiler `{self.name}` must be installed, but there is none of that name"

    @property
    def flags(self) -> tuple[str, ...]:
        """Options that kernels are compiled with: the standard, and the machine."""
        return (*STANDARD, *self.machine_options)

    @property
    def machine_options(self) -> tuple[str, ...]:
        return self.options or (("-march=native",) if self.name in ("cc", "gcc", "clang") else ())

    @cached_property
    def macros(self) -> frozenset[str]:
        """Macros that it defines by itself: they tell the instructions that it may use."""
        text = self._output(*self.machine_options, "-dM", "-E", "-x", "c", "-")
        return frozenset(line.split()[1] for line in text.splitlines() if line.startswith("#define "))

    @cached_property
    def machine(self) -> str:
        """Machine that it compiles for, such as `x86_64-linux-gnu`."""
        return self._output("-dumpmachine").strip()

    @cached_property
    def version(self) -> str:
        """First line of the compiler's version text."""
        return self._output("--version").partition("\n")[0]

    def _output(self, *arguments: str) -> str:
        if self.missing:
            raise BuildError(self.missing)
        return self._run([*arguments], None)

    @cached_property
    def links(self) -> bool:
        """True if shared libraries can be linked for the machine; otherwise there are only objects."""
        return is_here(self.machine) or "linux" in self.machine

    def object(self, text: str) -> bytes:
        """Compiles a text to an object; raises as `library` does."""
        return self._compile(text, "kernel.o", "-c")

    def library(self, text: str) -> bytes:
        """Compiles a text to a shared library.

        Raises:
            BuildError: the compiler is missing, or it refuses the text.
        """
        return self._compile(text, "kernel.so", *LIBRARY, "-lm")

    def assembly(self, text: str) -> str:
        """Compiles a text to assembly."""
        return self._compile(text, "kernel.s", "-S", "-fPIC").decode()

    def _compile(self, text: str, file: str, *options: str) -> bytes:
        if self.missing:
            raise BuildError(self.missing)
        with ScratchFolder("c") as folder:
            Path(folder, "kernel.c").write_text(text, encoding="utf-8")
            before = [option for option in options if not option.startswith("-l")]
            after = [option for option in options if option.startswith("-l")]
            self._run([*self.flags, *before, "-o", file, "kernel.c", *after], folder)
            return Path(folder, file).read_bytes()

    def _run(self, arguments: list[str], folder: str | None) -> str:
        command = [self.name, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"`{self.name}` must compile, but: {error}") from None
        if done.returncode:
            raise BuildError(f"`{self.name}` must compile, but said: {done.stderr.strip()[:1000]}")
        return done.stdout
