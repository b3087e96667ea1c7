# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What formatters and compilers do not check: the shape of the repository.

Prints one line per finding and exits with 1 if there are any. CONTRIBUTING.md explains the rules.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

NOTICE = ["Copyright The Farandole Authors", "SPDX-License-Identifier: Apache-2.0"]
LINE_LENGTH_MAX = 100
LINE_COUNT_MAX = 800
CODE = {".cpp", ".hpp", ".inc", ".py", ".pyi"}
COMMENTED = CODE | {".cmake", ".toml", ".yaml", ".yml", ".sh"}
COMMENTED_NAMES = {"CMakeLists.txt", "Makefile", "run"}
# Words that belong to one machine or to unfinished work; in pieces, since this file is checked.
FORBIDDEN = re.compile(
    "|".join([r"/(work|root|tmp/venv|home/\w+)/", r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b"])
)
VARIABLE = re.compile(r"\bFARANDOLE_[A-Z][A-Z0-9_]*\b")
# These name transports of other programs.
OTHERS_TRANSPORTS = {"python/farandole/cli/horovod.py"}
# Whoever includes these depends on no layer.
VOCABULARY = {"farandole/types.hpp", "farandole/result.hpp"}


class Tree:
    """The files of a repository: those that git tracks or would add."""

    def __init__(self, root: Path) -> None:
        self.root = root
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
        names = sorted(set(listing.stdout.split("\n")) - {""})
        self.paths = [PurePosixPath(name) for name in names if (root / name).is_file()]

    def text(self, path: PurePosixPath | str) -> str:
        return (self.root / path).read_text()

    def under(self, *folders: str, suffixes: set[str] | None = None) -> Iterator[PurePosixPath]:
        for path in self.paths:
            if path.parts[0] in folders and (suffixes is None or path.suffix in suffixes):
                yield path

    def layers(self) -> dict[str, list[str]]:
        layers: dict[str, list[str]] = tomllib.loads(self.text("tools/layers.toml"))
        return layers


def check_notices(tree: Tree) -> Iterator[str]:
    for path in tree.paths:
        if path.suffix not in COMMENTED and path.name not in COMMENTED_NAMES:
            continue
        lines = tree.text(path).split("\n")
        start = 1 if lines[0].startswith("#!") else 0
        if [line.lstrip("#/ ") for line in lines[start : start + 2]] != NOTICE:
            yield f"{path}: does not start with the two lines of copyright and licence"


def check_lengths(tree: Tree) -> Iterator[str]:
    for path in tree.paths:
        if path.suffix not in COMMENTED and path.name not in COMMENTED_NAMES:
            continue
        lines = tree.text(path).split("\n")
        if len(lines) > LINE_COUNT_MAX and path.suffix in CODE:
            yield f"{path}: {len(lines)} lines, at most {LINE_COUNT_MAX} are allowed"
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_LENGTH_MAX:
                yield f"{path}:{number}: {len(line)} columns, at most {LINE_LENGTH_MAX} are allowed"


def check_words(tree: Tree) -> Iterator[str]:
    for path in tree.paths:
        if path.suffix not in COMMENTED | {".md", ".json"} and path.name not in COMMENTED_NAMES:
            continue
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if found := FORBIDDEN.search(line):
                yield f"{path}:{number}: {found[0]!r} has no place here"


def check_layers(tree: Tree) -> Iterator[str]:
    """layers.toml, CMakeLists.txt and the folders of src/ name the same layers."""
    layers = tree.layers()
    seen: list[str] = []
    for layer, below in layers.items():
        for other in below:
            if other not in seen:
                yield f"tools/layers.toml: {layer} may not depend on {other}, which is not below it"
        seen.append(layer)
    # A layer of headers only is nothing to link.
    built = {path.parts[1] for path in tree.under("src", suffixes={".cpp"})}
    expected = [(layer, built & set(below)) for layer, below in layers.items() if layer in built]
    linked = re.findall(r"^farandole_layer\((\w+)([\w\s]*)\)", tree.text("CMakeLists.txt"), re.M)
    if [(layer, set(below.split())) for layer, below in linked] != expected:
        yield "CMakeLists.txt: layers, order or dependencies differ from tools/layers.toml"
    folders = {path.parts[1] for path in tree.under("src")}
    for folder in sorted(folders ^ set(layers)):
        yield f"src/{folder}: is not both a folder and a layer of tools/layers.toml"


def check_includes(tree: Tree) -> Iterator[str]:
    """An include names the same layer or one that layers.toml allows."""
    layers = tree.layers()
    # These implement the public headers.
    top = {layer for layer, below in layers.items() if "frontend" in {layer, *below}}
    for path in tree.under("src", "tests", suffixes={".cpp", ".hpp", ".inc"}):
        if path.parts[:2] == ("tests", "unit"):
            layer = path.parts[2]
        elif path.parts[0] == "src":
            layer = path.parts[1]
        else:
            continue
        allowed = {layer, "unit", *layers.get(layer, [])}
        for included in re.findall(r'^#include "([^"]+)"', tree.text(path), re.M):
            target = included.split("/")[0]
            public = target == "farandole" and (included in VOCABULARY or layer in top)
            if target not in allowed and not public:
                yield f"{path}: includes {included}, which is not in or below {layer}"


def check_variables(tree: Tree) -> Iterator[str]:
    """Every environment variable is declared in the settings table, and none is left over."""
    table = "src/base/settings.cpp"
    declared = set(re.findall(r'Setting{"(FARANDOLE_\w+)"', tree.text(table)))
    cmake = [path for path in tree.paths if path.name == "CMakeLists.txt"]
    build_options = {word for path in cmake for word in VARIABLE.findall(tree.text(path))}
    used: set[str] = set()
    code = tree.under("src", "include", "bindings", "python", suffixes=CODE)
    documents = (path for path in tree.paths if path.suffix == ".md")
    for path in [*code, *documents]:
        if str(path) == table:
            continue
        words = set(VARIABLE.findall(tree.text(path)))
        if path.suffix == ".md":  # may also name what only the tests read
            words = {word for word in words if not word.startswith("FARANDOLE_TEST_")}
        else:
            used |= words
        for word in sorted(words - declared - build_options):
            yield f"{path}: {word} is not declared in {table}"
    for word in sorted(declared - used):
        yield f"{table}: {word} is read by nobody"


def check_tests(tree: Tree) -> Iterator[str]:
    """tests/unit mirrors the folders of src, and every layer that is built has a test."""
    sources = list(tree.under("src", suffixes={".cpp"}))
    folders = {path.relative_to("src").parent for path in tree.under("src")}
    tests = [path for path in tree.under("tests", suffixes={".cpp"}) if path.parts[1] == "unit"]
    for path in tests:
        folder = path.relative_to("tests/unit").parent
        if folder not in folders:
            yield f"{path}: there is no src/{folder} that it could be about"
    tested = {path.parts[2] for path in tests if path.stem.endswith("_test")}
    for layer in sorted({path.parts[1] for path in sources} - tested):
        yield f"src/{layer}: tests/unit/{layer} has no test"


def check_transports(tree: Tree) -> Iterator[str]:
    """No transport is named outside its folder and the registry: who needs one asks there."""
    registry = "src/transport/registry.cpp"
    rows = [path for path in tree.under("src") if path.match("src/transport/*/row.hpp")]
    names = {name for path in rows for name in re.findall(r'\.name = "(\w+)"', tree.text(path))}
    folders = {path.parts[2] for path in rows}
    if not names:
        return
    either = "|".join(sorted(names))
    named = re.compile(
        rf"""(?<!module\.def\()(["'])(?:transport=)?(?:{either})\1"""
        rf"""|"transport/(?:{"|".join(sorted(folders))})/"""
        rf"""|\b(?:{"|".join(sorted(folders))})::"""
        rf"""|\b(?:{"|".join(name.capitalize() for name in sorted(folders))})Transport\b"""
    )
    for path in tree.under("src", "include", "bindings", "python", suffixes=CODE):
        inside = path.parts[:2] == ("src", "transport") and len(path.parts) > 3
        if inside or str(path) in {registry, *OTHERS_TRANSPORTS}:
            continue
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if found := named.search(line):
                yield f"{path}:{number}: {found[0]} names a transport; {registry} is asked instead"


CHECKS: list[Callable[[Tree], Iterator[str]]] = [
    check_notices,
    check_lengths,
    check_words,
    check_layers,
    check_includes,
    check_variables,
    check_tests,
    check_transports,
]


def findings(root: Path) -> list[str]:
    tree = Tree(root)
    return [finding for check in CHECKS for finding in check(tree)]


def main() -> None:
    found = findings(Path(__file__).resolve().parent.parent)
    for finding in found:
        print(finding)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
