# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The shape of the repository, and that the tool which checks it notices."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import tidy

ROOT = Path(__file__).resolve().parents[2]
NOTICE = "Copyright The Farandole Authors", "SPDX-License-Identifier: Apache-2.0"
CPP = "".join(f"// {line}\n" for line in NOTICE)
ABSENT = ""
HASH = "".join(f"# {line}\n" for line in NOTICE)
LOW = "python/farandole/low/x.py"

SCOPES = """namespace a {{
namespace {{
constexpr char kMarks[] = {{'{{', '"'}};  // a brace {{
int f(int x) {{{body}}}
}}
}}
"""
METHOD = """namespace a {{
class B {{
 public:
  explicit B(int x) : x_{{x}} {{}}
  void f() const {{{body}}}

 private:
  int x_ = 1'000;
}};
}}
"""

CLEAN = {
    "CMakeLists.txt": HASH + "farandole_layer(base)\nfarandole_layer(upper base)\n",
    "tools/layers.toml": HASH + 'base = []\nupper = ["base"]\n',
    "tools/rooms.toml": HASH + 'errors = []\nlow = []\nfarandole = ["low"]\nhigh = ["low"]\n',
    "python/farandole/__init__.py": HASH + "from farandole import _native, low\n",
    "python/farandole/errors.py": HASH,
    LOW: HASH + "import os.path\nfrom farandole.low import y\n",
    "python/farandole/high/x.py": HASH + "import farandole.low.x\nfrom farandole import errors\n",
    "src/base/settings.cpp": CPP + 'Setting{"FARANDOLE_SPEED", ...};\n',
    "src/upper/part/thing.cpp": CPP + '#include "base/x.hpp"\nread("FARANDOLE_SPEED");\n',
    "tests/unit/base/settings_test.cpp": CPP,
    "tests/unit/upper/part/thing_test.cpp": CPP + '#include "upper/x.hpp"\n',
    "README.md": "Set FARANDOLE_SPEED, in tests also FARANDOLE_TEST_SPEED.\n",
}


def findings(folder: Path, tree: dict[str, str]) -> list[str]:
    for name, text in tree.items():
        if text == ABSENT:
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", folder], check=True)
    found: list[str] = tidy.findings(folder)
    return found


# Goal: the repository is tidy. Method: run the tool that `make lint` runs.
def test_repository_is_tidy() -> None:
    assert tidy.findings(ROOT) == []


# Goal: the trees below fail for the reason they are meant to. Method: without damage they pass.
def test_clean_tree_has_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, CLEAN) == []


# Goal: every function of a source is seen, with its length; nothing else is taken for one.
# Method: braces in strings, comments and initializers, nested blocks, lambdas and classes.
def test_functions_are_found() -> None:
    assert list(tidy.functions(SCOPES.format(body="\n"))) == [(4, 2)]
    assert [length for _, length in tidy.functions(METHOD.format(body="\n\n"))][-1] == 3
    source = """#define LOOP(x) while (x) {
R f() {
  if (x) {
    g([] { return "}"; });
  }
  const char* text = R"(}})";  /* } */
}
template <class T>
struct S {
  S() = default;
  int g(char c) const {
    return 1'000 > c && c == '}' ? 1 : 2;
  }
};
enum class E { kOne };
const std::vector<int> kList = {1, 2};
void last() {}
"""
    assert list(tidy.functions(source)) == [(2, 6), (11, 3), (17, 1)]


# Goal: the types that other files can see. Method: not those of unnamed namespaces or of functions,
# declarations, parts of other types, members.
def test_types_are_found() -> None:
    source = """namespace a {
class B;
struct B::C {
  struct D {};
};
class FARANDOLE_EXPORT B final {};
namespace {
struct Hidden {};
}  // namespace
namespace c::d {
enum class E { kOne };
void f() {
  struct Inner {};
}
}  // namespace c::d
struct alignas(64) F {
}  // namespace a
"""
    assert [name for _, name in tidy.types(source)] == ["a::B", "a::c::d::E", "a::F"]


# Goal: a preset builds the programs that it runs.
@pytest.mark.parametrize("name", ["release", "asan", "tsan-all"])
def test_presets_build_what_they_run(name: str) -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    (build,) = (each for each in presets["buildPresets"] if each["name"] == name)
    (run,) = (each for each in presets["testPresets"] if each["name"] == name)
    tested = {path.relative_to(ROOT / "tests/unit").parts[0]
              for path in (ROOT / "tests/unit").rglob("*_test.cpp")}  # fmt: skip
    programs = {f"unit_{layer}" for layer in tested} | {"conformance", "agreement", "simulation"}
    kept, left = (run["filter"].get(way, {}).get("name") for way in ("include", "exclude"))
    run_names = {
        program
        for program in programs
        if (kept is None or re.match(kept, f"{program}.0"))
        and (left is None or not re.match(left, f"{program}.0"))
    }
    assert run_names <= set(build["targets"])


# Goal: each check can fail, and says where. Method: one damaged file per case.
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("src/base/bare.cpp", "int x;\n", "two lines of copyright"),
        ("tools/bare.sh", "#!/bin/sh\n", "two lines of copyright"),
        ("src/base/wide.cpp", CPP + "/" * 101 + "\n", "101 columns"),
        ("python/long.py", HASH + "\n" * 799, "801 lines, at most 800"),
        ("src/base/long.cpp", CPP + "\n" * 449, "451 lines, at most 450"),
        ("src/base/tall.cpp", CPP + SCOPES.format(body="\n" * 50), "tall.cpp:6: a function of 51"),
        ("src/base/tall.hpp", CPP + METHOD.format(body="\n" * 50), "tall.hpp:7: a function of 51"),
        ("src/base/mine.cpp", CPP + "// see /ho" + "me/me/notes\n", "has no place here"),
        ("src/base/w.cpp", CPP + "int kNewsMax;\n", "has another word for 'News'"),
        ("docs/later.md", "TO" + "DO: write this\n", "has no place here"),
        ("src/base/t.cpp", CPP + "std::chrono::steady_clock::now();\n", "steady_clock is read"),
        ("src/upper/part/t.cpp", CPP + "clock_gettime(0, &t);\n", "clock_gettime is read"),
        ("src/base/up.cpp", CPP + '#include "upper/x.hpp"\n', "not in or below base"),
        ("src/base/top.cpp", CPP + '#include "farandole/farandole.hpp"\n', "not in or below base"),
        ("tests/unit/base/up_test.cpp", CPP + '#include "upper/x.hpp"\n', "not in or below base"),
        ("src/stray/x.cpp", CPP, "src/stray: is not both"),
        ("tools/layers.toml", HASH + 'upper = ["base"]\nbase = []\n', "is not below it"),
        ("CMakeLists.txt", HASH + "farandole_layer(base)\nfarandole_layer(upper)\n", "differ from"),
        ("CMakeLists.txt", HASH + "farandole_layer(upper base)\n", "differ from"),
        (LOW, HASH + "from farandole.high import x\n", "x.py:3: imports farandole.high.x, which"),
        (LOW, HASH + "def f():\n    import farandole.high.x\n", "denies to low"),
        (LOW, HASH + "from farandole import _native, high\n", "imports farandole.high, which"),
        (LOW, HASH + "import farandole\n", "imports farandole, which"),
        (LOW, HASH + "from farandole import rank\n", "imports farandole.rank, which"),
        (LOW, HASH + "from ..high import x\n", "imports ..high.x; give the full name"),
        ("python/farandole/stray/x.py", HASH, "python/farandole/stray: is not both"),
        ("python/farandole/high/x.py", ABSENT, "python/farandole/high: is not both"),
        ("tools/rooms.toml", HASH + 'low = ["high"]\nhigh = []\n', "is not below it"),
        ("python/x.py", HASH + 'get("FARANDOLE_SPEDE")\n', "FARANDOLE_SPEDE is not declared"),
        ("python/x.py", HASH + 'get("FARANDOLE_TEST_X")\n', "FARANDOLE_TEST_X is not declared"),
        ("README.md", "Set FARANDOLE_SPEDE.\n", "FARANDOLE_SPEDE is not declared"),
        ("src/upper/part/thing.cpp", CPP, "FARANDOLE_SPEED is read by nobody"),
        ("tests/unit/base/gone/x_test.cpp", CPP, "there is no src/base/gone"),
        ("tests/unit/upper/part/thing_test.cpp", ABSENT, "tests/unit/upper has no test"),
        (
            "src/base/b.hpp",
            CPP + 2 * "struct B {\n};\n",
            "b.hpp:5: B is a type of src/base/b.hpp:3",
        ),
    ],
)
def test_damage_is_noticed(tmp_path: Path, name: str, text: str, expected: str) -> None:
    found = findings(tmp_path, CLEAN | {name: text})
    assert any(expected in finding for finding in found), found


# Goal: one place for the version. Method: read it from the two files that need it.
# Goal: a transport is named in its folder and the registry only.
# Method: a transport "wire"; a file that names it, one way at a time.
@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        ("src/base/x.cpp", 'if (wish == "wire") {\n', True),
        ("src/base/x.cpp", 'parse("transport=wire");\n', True),
        ("src/base/x.cpp", '#include "transport/wire/wire_transport.hpp"\n', True),
        ("src/base/x.cpp", "wire::connect();\n", True),
        ("src/base/x.cpp", "WireTransport transport;\n", True),
        ("python/farandole/x.py", "words = ('auto', 'wire')\n", True),
        ("src/base/x.cpp", 'log("no wire, none at all");  // like a wire\n', False),
        ("src/transport/registry.cpp", '#include "transport/wire/row.hpp"\n', False),
        ("src/transport/wire/x.cpp", 'say("wire", wire::kRow);\n', False),
        ("tests/unit/base/x_test.cpp", 'start("wire");\n', False),
    ],
)
def test_transports_are_not_named(tmp_path: Path, name: str, text: str, is_found: bool) -> None:
    row = CPP + 'inline constexpr TransportRow kRow{\n    .name = "wire",\n};\n'
    start = HASH if name.endswith(".py") else CPP
    found = findings(tmp_path, CLEAN | {"src/transport/wire/row.hpp": row, name: start + text})
    naming = [finding for finding in found if "names a transport" in finding]
    assert [finding.startswith(f"{name}:3: ") for finding in naming] == [True] * is_found


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (
        f"project(farandole VERSION {project['version']} " in (ROOT / "CMakeLists.txt").read_text()
    )
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text()
