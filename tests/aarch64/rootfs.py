"""A builder of an AArch64 Python that runs here under user-mode emulation, from Debian's packages and wheels.

`python -m tests.aarch64.rootfs` makes it, unless it is there already, in a cache outside the repository, and says where
that is.
It needs `qemu-aarch64-static` or `qemu-aarch64`, apt-get of a Debian, and pip; it changes nothing of the system.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libuuid1", "libbz2-1.0")
WHEELS = ("numpy", "grpcio", "llvmlite", "ml_dtypes", "msgspec", "orjson", "typer")
"""Wheels that the worker of a device imports."""
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
VERSION = "3"
"""Version of this module's output; an output of another version is built anew."""


def emulator() -> str | None:
    """Returns the path of QEMU's user-mode emulator; None without one."""
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


def cache() -> Path:
    """Folder of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "autotune" / f"aarch64-{VERSION}"


def python() -> Path:
    """The emulated interpreter, made first where it is not there; a script that the system can start.

    Raises:
        FileNotFoundError: there is no emulator.
        subprocess.CalledProcessError: a package cannot be had.
    """
    qemu = emulator()
    if qemu is None:
        raise FileNotFoundError("qemu-aarch64-static")
    root = cache()
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
            made = _make(Path(scratch))
            if not root.is_dir():  # or somebody else was faster
                made.rename(root)
    (binary,) = (path for path in (root / "usr" / "bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name))
    script = root / "usr" / "bin" / "emulated-python"
    text = f'#!/bin/sh\nexec {qemu} -L {root} -0 "$0" {binary} "$@"\n'  # the name that it finds itself by
    if not script.exists() or script.read_text() != text:
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(script)
    return script


def site() -> Path:
    """Its packages, for PYTHONPATH."""
    return cache() / "site"


def is_ours() -> bool:
    """Tells whether the interpreter has this one's version, so that byte code compiled here is valid there."""
    return (cache() / "usr" / "bin" / f"python3.{sys.version_info.minor}").exists()


def _make(scratch: Path) -> Path:
    root, packages, wheels = scratch / "root", scratch / "packages", scratch / "wheels"
    for folder in (root, packages, wheels):
        folder.mkdir()
    apt = _Apt(scratch / "apt")
    minimal = apt.depends("python3-minimal", r"python3\.\d+-minimal")
    version = minimal.removeprefix("python").removesuffix("-minimal")
    apt.download([minimal, f"libpython{version}-minimal", f"libpython{version}-stdlib", *LIBRARIES], packages)
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--only-binary=:all:"]
    platforms = [f"--platform={name}" for name in (*PLATFORMS, "any")]
    subprocess.run([*command, *platforms, f"--python-version={version}", f"--dest={wheels}", *WHEELS], check=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / "site")
    if version == f"3.{sys.version_info.minor}":  # byte code is the same there, and made in a third of the time here
        for folder in (root / "site", root / "usr" / "lib"):
            compileall.compile_dir(folder, quiet=2, workers=2)
    return root


class _Apt:
    """apt-get for AArch64 with state of its own: nothing of the system changes, and anybody may use it."""

    def __init__(self, folder: Path) -> None:
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        self._options = [
            f"-oDir::State={folder}/state",
            f"-oDir::State::status={folder}/status",
            f"-oDir::Cache={folder}/cache",
            "-oAPT::Architecture=arm64",
            "-oAPT::Architectures=arm64",
            "-oAPT::Sandbox::User=",
            "-oAcquire::Languages=none",
        ]
        self._run("apt-get", "-qq", "update")

    def depends(self, package: str, pattern: str) -> str:
        """The package on which another one depends, by a pattern of its name."""
        found = re.search(rf"Depends: ({pattern})\s", self._run("apt-cache", "depends", package))
        if found is None:
            raise LookupError(f"`{package}` must depend on {pattern}, but does not in this distribution")
        return found.group(1)

    def download(self, names: list[str], folder: Path) -> None:
        """Puts packages into a folder."""
        self._run("apt-get", "-qq", "download", *names, cwd=folder)

    def _run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        command = [program, *self._options, *arguments]
        return subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    print(python())
