# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/mutate.py: what it changes, and what it concludes from a small project's test."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

import mutate
from mutations import Mutant, draw, file_mutations, masked

FUNCTION = """int bounded(int value) {{
  {line}
  return value;
}}
"""


def changes(line: str, text: str = FUNCTION) -> set[tuple[str, str]]:
    """The mutations of one line inside a function."""
    found = dict(file_mutations(text.format(line=line)))
    return {(name, after.strip()) for name, after in found.get(2, [])}


# Goal: each operator makes exactly the changes that it is for, where clang-format's spacing says
# that it is one. Method: lines whose whole set of mutations is written down.
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "if (a < b) c = d;",
            {
                ("order", "if (a <= b) c = d;"),
                ("order", "if (a >= b) c = d;"),
                ("condition", "if (true) c = d;"),
                ("condition", "if (false) c = d;"),
            },
        ),
        (
            "return a == b && !f(c);",
            {
                ("comparison", "return a != b && !f(c);"),
                ("logic", "return a == b || !f(c);"),
                ("not", "return a == b && f(c);"),
            },
        ),
        (
            "const auto end = std::min(a + 1, b);",
            {
                ("bound", "const auto end = std::max(a + 1, b);"),
                ("sum", "const auto end = std::min(a - 1, b);"),
                ("number", "const auto end = std::min(a + 2, b);"),
                ("number", "const auto end = std::min(a + 0, b);"),
            },
        ),
        ("peer.ring();", {("delete", ";"), ("return", "return {}; peer.ring();")}),
        (
            "while (!done()) {",
            {("not", "while (done()) {"), ("condition", "while (false) {")},
        ),
        (
            'return fail(a != b, "a + 1 < b");',
            {("comparison", 'return fail(a == b, "a + 1 < b");')},
        ),
        (
            "f<A>(std::move(a));  // a < b",
            {("delete", ";"), ("return", "return {}; f<A>(std::move(a));  // a < b")},
        ),
    ],
)
def test_a_line_has_these_mutations(line: str, expected: set[tuple[str, str]]) -> None:
    assert changes(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "// if (a < b) return false;",
        '#include "a.hpp"  // true',
        "static_assert(a < b);",
        "constexpr int kLimit = 3;",
        "std::vector<std::pair<int, int>> pairs;",
        "std::function<void(Rank)> on_loss;",
        "void take(Operation&& operation);",
        'message += " of rank " + std::to_string(rank + 1);',
        "log_warning(a < b);",
        "const auto words = std::to_string(rank + 1);",
        "phase.store(std::memory_order_relaxed),",
    ],
)
def test_nothing_is_changed_that_no_test_could_notice(line: str) -> None:
    assert changes(line) == set()


def test_functions_that_make_messages_are_left_alone() -> None:
    text = "std::string Batch::state(int a,\n              int b) const {\n  use(a < b);\n}\n"
    assert not list(file_mutations(text))
    assert list(file_mutations(text.replace("state", "start")))


def test_an_early_return_suits_the_function() -> None:
    void = "void stop(int a,\n          int b) {{\n  if (f(a, b)) {{\n    g();\n  }}\n}}\n".format()
    after = dict(file_mutations(void))[4]
    assert ("return", "    return; g();") in after
    after = dict(file_mutations(void.replace("void", "bool")))[4]
    assert ("return", "    return {}; g();") in after


def test_masking_keeps_every_position() -> None:
    text = 'a = 1\'000 + \'"\'; // "x\nb = "//\\""; /* c\n d */ e'
    hidden = masked(text)
    assert hidden == "a = 1'000 + '_';      \nb = \"____\";     \n      e"
    assert len(hidden) == len(text)


def test_a_seed_draws_the_same_mutants_again_and_each_line_once() -> None:
    texts = {"b.cpp": FUNCTION.format(line="if (a < b) c = d;") * 20, "a.cpp": "f(1, 2);\n"}
    first, again, other = list(draw(texts, 3)), list(draw(texts, 3)), list(draw(texts, 4))
    assert first == again != other
    assert [mutant.number for mutant in first] == list(range(1, len(first) + 1))
    assert len({(mutant.file, mutant.line) for mutant in first}) == len(first)


# A project whose "compiler" copies a Python file, with a program that speaks as GoogleTest does.
# Line 1 is tested, line 2 is not.
SOURCE = "  limit = take(3);\n  spare = take(5);\n"
COMPILER = """import pathlib, sys
source = pathlib.Path("tree/src/toy/toy.cpp").read_text().replace(";", "")
if "{}" in source or "return" in source:
    sys.exit("toy.cpp:1: error: no such thing")
lines = [line.strip() for line in source.splitlines()]
pathlib.Path(sys.argv[1]).write_text(PROGRAM.format(python=sys.executable, lines="\\n".join(lines)))
pathlib.Path(sys.argv[1]).chmod(0o755)
"""
PROGRAM = """#!{python}
import os, pathlib, sys, time
def take(value): return value
limit = spare = 0
{lines}
chosen = sys.argv[2].split("=")[1]
print("[ RUN      ] Toy.Works", flush=True)
if limit == 9: time.sleep(1000)
if limit == 8: os.abort()
if limit == 10:
    held = bytearray(b"x" * (200 << 20))
    time.sleep(1000)
once = pathlib.Path("once")
if limit == 7 and not once.exists() and "-" not in chosen:
    once.touch()
    limit = 0
if limit not in (3, 7):
    print("[  FAILED  ] Toy.Works (0 ms)")
    sys.exit(1)
print("[       OK ] Toy.Works (0 ms)")
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mutate.Project:
    monkeypatch.setattr(mutate, "SILENCE_S_MIN", 1.0)
    monkeypatch.setattr(mutate, "PATIENCE", 0)
    monkeypatch.setattr(mutate, "MEMORY_BYTES_MAX", 100 << 20)
    place = tmp_path / "place"
    place.mkdir()
    (place / "compile.py").write_text(f"PROGRAM = {PROGRAM!r}\n{COMPILER}")
    build = (sys.executable, "compile.py", "{suite}")
    sources = {"src/toy/toy.cpp": SOURCE.encode()}
    project = mutate.Project(tmp_path, place, build, "{suite}", ("unit_toy",), sources)
    project.restore()
    project.measure()
    return project


def verdict(project: mutate.Project, line: int, after: str) -> tuple[str, str]:
    before = SOURCE.splitlines()[line - 1].strip()
    mutant = Mutant(line, "src/toy/toy.cpp", line, "number", before, after)
    record = mutate.try_mutant(project, mutant, [])
    return record["verdict"], record["by"]


# Goal: each verdict is reached, and the original is tried again after each mutant.
# Method: mutants of the toy that fail, crash, hang, pass, do not compile or change nothing.
@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        (1, "limit = take(4);", ("killed", "unit_toy Toy.Works")),
        (1, "limit = take(8);", ("killed", "unit_toy Toy.Works")),
        (1, "limit = take(9);", ("killed", "unit_toy Toy.Works (time limit)")),
        (1, "limit = take(10);", ("killed", "unit_toy Toy.Works (memory limit)")),
        (1, "limit = take(7);", ("alive", "failed once: Toy.Works")),
        (1, "return {}; limit = take(3);", ("invalid", "toy.cpp:1: error: no such thing")),
        (1, "limit = take(3);;", ("same", "")),
        (2, "spare = take(6);", ("alive", "")),
    ],
)
def test_verdicts(toy: mutate.Project, line: int, after: str, expected: tuple[str, str]) -> None:
    assert verdict(toy, line, after) == expected
    assert (toy.tree / "src/toy/toy.cpp").read_text() != SOURCE
    toy.restore()
    assert (toy.tree / "src/toy/toy.cpp").read_text() == SOURCE
    assert toy.compile("unit_toy") is None
    assert toy.run("unit_toy", "*", 5)[0] is None


# Goal: tests that fail once each kill nothing. Method: as many as end the trial.
def test_unsteady_tests_kill_nothing(toy: mutate.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "UNSTEADY_MAX", 1)
    assert verdict(toy, 1, "limit = take(7);") == ("alive", "failed once: Toy.Works")


def test_a_listed_mutant_is_not_tried(toy: mutate.Project, tmp_path: Path) -> None:
    table = tmp_path / "mutants.toml"
    row = {"file": "src/toy/toy.cpp", "before": "spare = take(5);", "after": "spare = take(6);"}
    body = "\n".join(f"{key} = {json.dumps(value)}" for key, value in row.items())
    table.write_text(f'[[equivalent]]\n{body}\nreason = "nobody reads it"\n')
    toy.build = ("false",)
    mutant = Mutant(1, line=2, operator="number", **row)
    record = mutate.try_mutant(toy, mutant, mutate.reasons(table))
    assert (record["verdict"], record["by"]) == ("equivalent", "nobody reads it")
    elsewhere = row | {"above": "another line", "reason": "of another line"}
    assert mutate.reason_of(toy, mutant, [elsewhere]) == ""


# Goal: an entry whose line has moved or gone is noticed, since it would excuse nothing, and one
# that means several lines, since it would excuse too much.
def test_listed_mutants_are_of_one_line() -> None:
    listed = mutate.reasons(mutate.EQUIVALENT)
    assert listed
    for row in listed:
        assert len(mutate.places((mutate.ROOT / row["file"]).read_text(), row)) == 1, row


def test_a_patch_is_tried_like_a_mutant(toy: mutate.Project, tmp_path: Path) -> None:
    patch = tmp_path / "limit.patch"
    name = "src/toy/toy.cpp"
    patch.write_text(
        f"--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n"
        "-  limit = take(3);\n+  limit = take(4);\n   spare = take(5);\n"
    )
    record = mutate.try_mutant(toy, mutate.of_patch(patch), [])
    assert (record["verdict"], record["by"]) == ("killed", "unit_toy Toy.Works")


def test_an_original_that_fails_ends_the_run(toy: mutate.Project) -> None:
    (toy.tree / "src/toy/toy.cpp").write_text(SOURCE.replace("3", "4"))
    toy.silence_s.clear()
    with pytest.raises(SystemExit, match="the original fails unit_toy Toy"):
        toy.measure()


# Goal: an interrupted run continues, and mutants that do not count are drawn again.
# Method: run for one mutant, then for two with the same report; forbid what was tried before.
def test_a_run_continues_from_its_report(
    toy: mutate.Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "src/toy/toy.cpp"
    mutants = [
        Mutant(1, name, 2, "return", "spare = take(5);", "return {}; spare = take(5);"),
        Mutant(2, name, 1, "number", "limit = take(3);", "limit = take(4);"),
        Mutant(3, name, 2, "number", "spare = take(5);", "spare = take(6);"),
    ]
    path = tmp_path / "report.jsonl"

    def run(count: int, key: str) -> list[dict[str, object]]:
        report = mutate.Report(path, toy, {"seed": key})
        return mutate.run_drawn(toy, iter(mutants), count, report, [])

    assert [record["verdict"] for record in run(1, "a")] == ["killed"]
    mutants[:2] = [dataclasses.replace(mutant, file="none") for mutant in mutants[:2]]
    toy.restore()
    records = run(2, "a")
    assert [record["verdict"] for record in records] == ["killed", "alive"]
    assert len(path.read_text().splitlines()) == 4
    mutate.summarize(records, 7)
    assert "seed 7: 2 mutants: 1 killed, 1 alive; 50.0 % alive" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other sources or options"):
        run(2, "b")
