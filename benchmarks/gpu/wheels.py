"""Wheels for a machine with PyTorch: `python -m benchmarks.gpu.wheels [--python 3.12]` fills `.gpu_wheels/`.

With them `make test-gpu` needs no registry there. NVRTC, NumPy and the like come with PyTorch. Its folder `modules` has
the modules that the ladder loads, compiled here.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.ladder.rungs import pack

FOLDER = Path(".gpu_wheels")
MOST_BYTES = 50 << 20
PACKAGES = (
    "cuda-pathfinder",
    *("annotated-types", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection"),
    *("lightgbm>=4.5", "ml_dtypes>=0.5", "msgspec>=0.19", "orjson>=3.10", "threadpoolctl>=3.5", "PyYAML>=6.0"),
    *("pytest>=8.3", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "execnet"),
    *("pluggy", "iniconfig", "pygments", "packaging"),
    *("hypothesis>=6.100", "sortedcontainers"),
)
WITH_TORCH = ("numpy", "scipy", "scikit-learn", "joblib", "llvmlite", "nvidia-cuda-nvrtc")
"""Packages that an interpreter with PyTorch for CUDA has."""
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (34, 28, 27, 24, 17)), "manylinux2014_x86_64")


def list_pins() -> list[str]:
    """Lists the exact versions of the extra `gpu`, except NVRTC, which comes with PyTorch."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [p for p in project["optional-dependencies"]["gpu"] if not p.startswith("nvidia-cuda-nvrtc")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Downloads the wheels; returns 2 if they are larger than allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.wheels", description=__doc__)
    parser.add_argument("--python", default="3.12", help="version of the interpreter there")
    parser.add_argument("--arch", default="sm_90a", help="of the GPU there, for which the ladder is compiled")
    options = parser.parse_args(arguments)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", options.python]
    subprocess.run([*command, *platforms, "--dest", str(FOLDER), *list_pins(), *PACKAGES], check=True)
    modules = pack(FOLDER / "modules", options.arch)
    wheels = list(FOLDER.glob("*.whl"))
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        sys.stderr.write(f"they must come to at most {MOST_BYTES} bytes, but got {size}\n")
        return 2
    sys.stdout.write(f"{len(wheels)} wheels and {len(modules)} modules, {size / 2**20:.1f} MiB, are in {FOLDER}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
