# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What formatters and compilers do not check: the shape of the repository.

Prints one line per finding and exits with 1 if there are any. CONTRIBUTING.md explains the rules.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

NOTICE = ["Copyright The Farandole Authors", "SPDX-License-Identifier: Apache-2.0"]
LINE_LENGTH_MAX = 100
LINE_COUNT_MAX = 800
SOURCE_LINE_COUNT_MAX = 450  # of a file in src/
FUNCTION_LINE_COUNT_MAX = 50  # in src/, from the signature to the closing brace
CODE = {".c", ".h", ".cpp", ".hpp", ".inc", ".py", ".pyi"}
COMMENTED = CODE | {".cmake", ".toml", ".yaml", ".yml", ".sh"}
COMMENTED_NAMES = {"CMakeLists.txt", "Makefile", "run"}
# Words that belong to one machine or to unfinished work; in pieces, since this file is checked.
FORBIDDEN = re.compile(
    "|".join([r"/(work|root|tmp/venv|home/\w+)/", r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b"])
)
# CONTRIBUTING.md says which words stand for these things instead.
LEXICON = re.compile(
    r"(?:(?<![A-Za-z])(?:card|news|farewell|stranger|door|wish)"
    r"|(?:Card|News|Farewell|Stranger|Door|Wish))(?:e?s)?(?![a-z])"
)
NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{")
TYPE = re.compile(
    r"(?:class|struct|union|enum(?: class)?) (?:FARANDOLE_\w+ |alignas\(.*?\) )?"
    r"(\w+)\b(?!::|[^{]*;)"
)
# Time comes from base/clock.hpp, which a simulation replaces.
CLOCK = re.compile(r"\b(?:steady|system|high_resolution)_clock\b|\bclock_gettime\b|\b__rdtscp?\b")
CLOCK_READERS = {"src/base/clock.hpp", "src/base/ticks.hpp"}
VARIABLE = re.compile(r"\bFARANDOLE_[A-Z][A-Z0-9_]*\b")
# These name transports of other programs.
OTHERS_TRANSPORTS = {"python/farandole/cli/horovod.py"}
# Whoever includes these depends on no layer.
VOCABULARY = {f"farandole/{name}.hpp" for name in ("types", "result", "device", "job", "store")}
# The layer that implements the other headers of include/; those above it may include them too.
FRONTEND = "frontend"
# Its constants look like variables of the environment.
C_HEADER = "include/farandole/farandole.h"


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

    def table(self, path: str) -> dict[str, list[str]]:
        """Names, lowest first, and those below it that each may depend on."""
        table: dict[str, list[str]] = tomllib.loads(self.text(path))
        return table


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
        most = SOURCE_LINE_COUNT_MAX if path.parts[0] == "src" else LINE_COUNT_MAX
        count = len(lines) - (lines[-1] == "")
        if count > most and path.suffix in CODE:
            yield f"{path}: {count} lines, at most {most} are allowed"
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_LENGTH_MAX:
                yield f"{path}:{number}: {len(line)} columns, at most {LINE_LENGTH_MAX} are allowed"


# Comments, raw strings, strings, characters (not the marks within numbers), directives.
OPAQUE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*\""""
    r"""|(?<!\w)'(?:\\.|[^'\\\n])+'|^[ ]*\#(?:\\\n|[^\n])*""",
    re.S | re.M,
)
SCOPE = re.compile(
    r"(?:template\s*<[^{}]*?>\s*)?(?:inline\s+)?(?:namespace|struct|class|union|enum|extern)\b"
)
LABEL = re.compile(r"(?:public|protected|private)\s*:")


def functions(source: str) -> Iterator[tuple[int, int]]:
    """First line and length of every function whose body is in this C++ text.

    A brace after parentheses opens a function if all braces around it open namespaces or classes.
    """
    text = OPAQUE.sub(lambda found: "\n" * found[0].count("\n"), source)
    text = LABEL.sub(";", text)
    scopes = 0  # open braces of namespaces and classes around the place
    inner = 0  # open braces within
    begin, function = 0, None
    for found in re.finditer(r"[;{}]", text):
        place = found.start()
        if found[0] == "{" and inner == 0:
            head = text[begin:place].strip()
            if SCOPE.match(head):
                scopes += 1
            else:
                inner = 1
                function = text.index(head, begin) if "(" in head else None
        elif found[0] == "{":
            inner += 1
        elif found[0] == "}" and inner > 0:
            inner -= 1
            if inner == 0 and function is not None:
                line = text.count("\n", 0, function) + 1
                yield line, text.count("\n", function, place) + 1
        elif found[0] == "}":
            scopes -= 1
        if inner == 0:
            begin = place + 1


def check_functions(tree: Tree) -> Iterator[str]:
    """No function of src/ is too long to be read at once."""
    for path in tree.under("src", suffixes={".cpp", ".hpp"}):
        for line, count in functions(tree.text(path)):
            if count > FUNCTION_LINE_COUNT_MAX:
                most = FUNCTION_LINE_COUNT_MAX
                yield f"{path}:{line}: a function of {count} lines, at most {most} are allowed"


def types(source: str) -> Iterator[tuple[int, str]]:
    """Line numbers and qualified names of the types that other files can see."""
    spaces: list[str] = []
    for number, line in enumerate(source.split("\n"), 1):
        if opened := NAMESPACE.match(line):
            spaces.append(opened[1])
        elif line.startswith("}  // namespace"):
            del spaces[-1:]
        elif (found := TYPE.match(line)) and "" not in spaces:
            yield number, "::".join([*spaces, found[1]])


def check_types(tree: Tree) -> Iterator[str]:
    """No two types share a name: of two constructors the linker would take either for both."""
    seen: dict[str, str] = {}
    for path in tree.under("src", "include", "bindings", suffixes={".cpp", ".hpp", ".h", ".inc"}):
        for number, name in types(tree.text(path)):
            at = f"{path}:{number}"
            if name in seen:
                yield f"{at}: {name} is a type of {seen[name]} too"
            seen[name] = at


def check_words(tree: Tree) -> Iterator[str]:
    for path in tree.paths:
        if path.suffix not in COMMENTED | {".md", ".json"} and path.name not in COMMENTED_NAMES:
            continue
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if found := FORBIDDEN.search(line):
                yield f"{path}:{number}: {found[0]!r} has no place here"


def check_lexicon(tree: Tree) -> Iterator[str]:
    """src/ calls each thing by its one name, also within longer names."""
    for path in tree.under("src", suffixes={".cpp", ".hpp", ".inc"}):
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if found := LEXICON.search(line):
                yield f"{path}:{number}: CONTRIBUTING.md has another word for {found[0]!r}"


def check_clocks(tree: Tree) -> Iterator[str]:
    """Only base/ reads the system's clocks."""
    for path in tree.under("src", suffixes={".cpp", ".hpp", ".inc"}):
        if str(path) in CLOCK_READERS:
            continue
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if found := CLOCK.search(line):
                yield f"{path}:{number}: {found[0]} is read; Clock of base/clock.hpp is allowed"


def upward(path: str, table: dict[str, list[str]]) -> Iterator[str]:
    """A table has no circle: each of its rows depends only on rows before it."""
    seen: set[str] = set()
    for name, below in table.items():
        for other in below:
            if other not in seen:
                yield f"{path}: {name} may not depend on {other}, which is not below it"
        seen.add(name)


def check_layers(tree: Tree) -> Iterator[str]:
    """layers.toml, CMakeLists.txt and the folders of src/ name the same layers."""
    layers = tree.table("tools/layers.toml")
    yield from upward("tools/layers.toml", layers)
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
    layers = tree.table("tools/layers.toml")
    for path in tree.under("src", "tests", suffixes={".cpp", ".hpp", ".inc"}):
        if path.parts[:2] == ("tests", "unit"):
            layer = path.parts[2]
        elif path.parts[0] == "src":
            layer = path.parts[1]
        else:
            continue
        allowed = {layer, "unit", *layers.get(layer, [])}
        sees_public = FRONTEND in allowed
        for included in re.findall(r'^#include "([^"]+)"', tree.text(path), re.M):
            target = included.split("/")[0]
            public = target == "farandole" and (included in VOCABULARY or sees_public)
            if target not in allowed and not public:
                yield f"{path}: includes {included}, which is not in or below {layer}"


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of all that a Python file imports; `from a import b` is a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def check_rooms(tree: Tree) -> Iterator[str]:
    """rooms.toml names what is at the top of the Python package, and imports follow it."""
    rooms = tree.table("tools/rooms.toml")
    yield from upward("tools/rooms.toml", rooms)
    package = PurePosixPath("python/farandole")
    files = {
        path: PurePosixPath(path.relative_to(package).parts[0]).stem
        for path in tree.under("python", suffixes={".py"})
        if path.is_relative_to(package)
    }
    room_of = {path: "farandole" if top == "__init__" else top for path, top in files.items()}
    for room in sorted(set(room_of.values()) ^ set(rooms)):
        yield f"{package}/{room}: is not both in the package and a room of tools/rooms.toml"
    for path, room in room_of.items():
        allowed = {room, "errors", "_native", *rooms.get(room, [])}
        for line, name in imported(tree.text(path)):
            top, _, rest = name.partition(".")
            first = rest.split(".")[0]
            target = first if first in rooms or first == "_native" else "farandole"
            if top == "":
                yield f"{path}:{line}: imports {name}; give the full name"
            elif top == "farandole" and target not in allowed:
                yield f"{path}:{line}: imports {name}, which tools/rooms.toml denies to {room}"


def check_variables(tree: Tree) -> Iterator[str]:
    """Every environment variable is declared in the settings table, and none is left over."""
    table = "src/base/settings.cpp"
    declared = set(re.findall(r'Setting{"(FARANDOLE_\w+)"', tree.text(table)))
    cmake = [path for path in tree.paths if path.name == "CMakeLists.txt"]
    known = {word for path in cmake for word in VARIABLE.findall(tree.text(path))}  # build options
    if PurePosixPath(C_HEADER) in tree.paths:
        known |= set(VARIABLE.findall(tree.text(C_HEADER)))
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
        for word in sorted(words - declared - known):
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
    check_functions,
    check_types,
    check_words,
    check_lexicon,
    check_clocks,
    check_layers,
    check_includes,
    check_rooms,
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
