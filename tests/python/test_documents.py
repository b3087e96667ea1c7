# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the documents promise, run as a reader would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FARANDOLE = [sys.executable, "-m", "farandole.cli"]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def output(*arguments: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [*FARANDOLE, *map(str, arguments)], cwd=cwd, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def program(document: Path, section: str) -> str:
    found = re.search(rf"^## {section}$.*?^```python\n(.*?)^```", document.read_text(), re.M | re.S)
    assert found is not None, f"{document.name} has no program under {section}"
    return found[1]


def readme_program(section: str) -> str:
    return program(ROOT / "README.md", section)


# Goal: the README's NumPy program gives every rank the average.
# Method: run it on three ranks, whose average is 1.
def test_readme_numpy_program_runs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(readme_program("NumPy"))
    text = output("run", "-n", "3", "-p", "program.py", cwd=tmp_path)  # -p: whole lines
    lines = re.findall(r"rank \d of 3: .*", text)
    assert sorted(lines) == [f"rank {rank} of 3: [1. 1. 1. 1.]" for rank in range(3)]


# Goal: the README's PyTorch program trains. Method: run it on two ranks.
def test_readme_pytorch_program_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(readme_program("PyTorch"))
    assert "loss of the last step on rank 0 of 2: " in output(
        "run", "-n", "2", "program.py", cwd=tmp_path
    )


GUIDE_LINES = {
    "Messages": [f"rank {rank} has {(rank - 1) % 4}" for rank in range(4)],
    "Communicators": [f"rank {rank} is rank {1 - rank // 2} of 2" for rank in range(4)],
    "Communicators by their members alone": [f"rank {r} is rank {1 - r} of 2" for r in range(2)],
    "The end of a request": ["the sums are there"] * 4,
    "Jobs without environment variables": [
        f"epoch {epoch}: rank {rank} counts 2" for epoch in range(2) for rank in range(2)
    ],
    "A chain that shares no link": ["[0, 2, 1, 3] shares a link 1 time(s), 0.0"] * 4,
    "Algorithms": ["[ 0.  4.  8. 12. 16. 20. 24. 28.]"] * 4,
}


# Goal: the programs in the guide do what it says. Method: run each on four ranks.
@pytest.mark.parametrize("section", GUIDE_LINES)
def test_guide_programs_run(section: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program(ROOT / "docs/guides/collectives.md", section))
    text = output("run", "-n", "4", "-p", "program.py", cwd=tmp_path)
    for line in GUIDE_LINES[section]:
        assert line in text


# Goal: every program of the PyTorch guide runs, and so do those of its commands that start one.
# Method: its programs are parts of one; run that as the guide says.
def test_pytorch_guide_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = (ROOT / "docs/guides/pytorch.md").read_text()
    parts = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "train.py").write_text("\n".join(parts))
    commands = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    assert commands == ["pip install '.[torch]'\n", "farandole run -n 2 python train.py\n"]
    said = output(*commands[1].split()[1:], cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", said)]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    assert sorted(re.findall(r"rank \d waited for rank 1", said)) == [
        f"rank {rank} waited for rank 1" for rank in range(2)
    ]


# Goal: each command in the README's table exists, and each that exists is there.
# Method: compare the table with what the command line says of itself.
def test_readme_lists_the_commands() -> None:
    from typer.main import get_command

    from farandole.cli.app import app

    commands = getattr(get_command(app), "commands", {})
    text = (ROOT / "README.md").read_text()
    shown = {name for name, command in commands.items() if not command.hidden}
    assert set(re.findall(r"^\| `farandole (\w+)", text, re.M)) == shown


# Goal: links between documents lead somewhere. Method: follow every relative one.
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


# Goal: paths and make targets that documents name exist.
# Method: look up everything in code quotes that looks like one.
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_and_targets_exist(document: Path) -> None:
    text = document.read_text()
    for path in re.findall(r"`((?:src|tools|tests|docs|examples|include|python)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    targets = set(re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(), re.M))
    known = {name for line in targets for name in line.split()}
    for command in re.findall(r"\bmake ([a-z-]+(?: [a-z-]+)*) ?[`#]", text):
        assert set(command.split()) <= known, command
