# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: every command takes its arguments alike: one name means one thing, what is wrong is said in
one line that names the option, with status 2 and before any work; JSON and tables come as a program
or a person can use them.

Method: the commands in this process, walked through as typer knows them, so that an option that is
added is tried, too. What is wrong with a value is decided here, by the type that the option asks.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import struct
import subprocess
import sys
import termios
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from farandole import _native, machines
from farandole.cli.app import app
from farandole.cli.arguments import RANKS_MAX
from farandole.errors import InvalidArgumentError

SEED = 20
PROGRAM_IN_PROCESS = typer.main.get_command(app)
PROGRAM = [sys.executable, "-m", "farandole.cli"]
# What each command needs, besides the option that is tried.
NEEDED = {
    "run": ["-n", "1", "true"],
    "plan": ["-n", "2", "-m", "abci"],
    "bench": ["allreduce"],
    "explain": ["allreduce", "--algorithm", "ring"],
    "probe": ["-o", "{folder}/machine.toml"],
    "tune": ["-o", "{folder}/tuning"],
    "simulate coordinator": ["--ranks", "2"],
    "simulate collective": ["-m", "abci", "-n", "2", "--algorithm", "ring"],
    "simulate training": ["-m", "abci", "-n", "2"],
    "sweep factorizations": ["-m", "abci", "-n", "4"],
    "sweep map": ["-m", "abci", "--ranks", "2"],
    "sweep scaling": ["-m", "abci", "--ranks", "2"],
    "trace merge": ["{folder}/none.json", "-o", "{folder}/out.json"],
    "trace summary": ["{folder}/none.json"],
}
WRONG_INTEGERS = ("x", "", "1.5", "nan", "inf", "1e308", "9" * 30, "-" + "9" * 30, "0x10", "-1")
WRONG_NUMBERS = ("x", "", "nan", "-nan", "inf", "-inf", "1e999", "1,5", "-1e308")
WRONG_BY_METAVAR = {
    "SIZE": ("x", "", "-1", "1.5", "4X", "8EiB", "nan", "9" * 40, "1e6", "2000000GiB"),
    "N,N,...": ("0", "x", "2,", "-1", "2,x", "9" * 30, "1e3", "27601", ",".join(["2"] * 2000)),
    "FILE": ("/no/such/folder/file", "/", "/proc/file", "/dev/null/file"),
}
# By the option's name; None: any text is right, or said to be wrong by whoever takes it.
WRONG_TEXT = {
    "--collective": ("gossip", "", "\udcff"),
    "--collectives": ("gossip", "", "allreduce,allreduce"),
    "--algorithm": ("no-such", "ring:radix=x", "hierarchical:layers=999999999999999999999"),
    "--machine": ("no-such", "/no/such.toml", "", "/dev/zero"),
    "--dtype": ("float99", ""),
    "--op": ("mean", ""),
    "--straggler": ("2", "2@2", "nan@0", "1e308@0", "-1@0", "2@x", "2@-1"),
    "--env": ("x", "=x", ""),
    "--hosts": ("a:0", "a:x", "a:99999999", "a,,b", "a b"),
    "--hostfile": ("/no/such/file", "/dev/zero", "/"),
    "--output-dir": ("/proc/folder", "/dev/null/folder"),
    "--timeline-filename": ("/no/such/folder/file", "/"),
    "--autotune-log-file": ("/no/such/folder/file", "/"),
}
LEFT_TO_RANKS = ("run --algorithm",)  # it sets a variable, which a rank reads, if it is one
OPTIONS_LEFT_TO_RANKS = ("bench --algorithm",)


def commands() -> dict[str, Any]:
    """By name, those of groups as in "sweep map"."""
    found: dict[str, Any] = {}

    def walk(command: Any, name: str) -> None:
        for key, one in getattr(command, "commands", {}).items():
            walk(one, f"{name} {key}".strip())
        if not hasattr(command, "commands"):
            found[name] = command

    walk(PROGRAM_IN_PROCESS, "")
    return found


COMMANDS = commands()


def options_of(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if parameter.opts[0].startswith("-")]


def long_name(option: Any) -> str:
    return str(next((name for name in option.opts if name.startswith("--")), option.opts[0]))


def metavar_of(option: Any) -> str:
    return str(option.metavar or "")


def wrong_values(command: str, option: Any) -> tuple[str, ...]:
    name, metavar = long_name(option), metavar_of(option)
    if getattr(option, "is_flag", False) or f"{command} {name}" in LEFT_TO_RANKS:
        return ()
    if f"{command} {name}" in OPTIONS_LEFT_TO_RANKS:
        return tuple(value for value in WRONG_TEXT[name] if ":" not in value)
    if metavar in WRONG_BY_METAVAR:
        return WRONG_BY_METAVAR[metavar]
    if "|" in metavar or metavar == "NAME":
        return ("no-such", "", "1", "\udcff")
    if (kind := numeric_kind(option)) is not None:
        wrong = WRONG_INTEGERS if kind is int else WRONG_NUMBERS
        if "No effect" in (option.help or ""):  # of Horovod's: any number will do
            return tuple(value for value in wrong if not value.startswith("-1"))
        return wrong
    return WRONG_TEXT.get(name, ())


def numeric_kind(option: Any) -> type | None:
    """What typer was asked for, in its older and its newer form."""
    described = getattr(option, "type_descriptor", None)
    asked = str(described.annotation if described is not None else option.type).lower()
    if "int" in asked:
        return int
    return float if "float" in asked else None


def wrong_calls() -> Iterator[tuple[str, Any, str]]:
    for name, command in COMMANDS.items():
        for option in options_of(command):
            for value in wrong_values(name, option):
                yield name, option, value


@pytest.fixture(autouse=True)
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner makes all commands anew for each call, which takes longer than most calls."""
    monkeypatch.setattr("typer.testing._get_command", lambda _: PROGRAM_IN_PROCESS)


def invoke(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env=environment)


def needed(command: str, folder: Path) -> list[str]:
    return [word.format(folder=folder) for word in NEEDED.get(command, [])]


# Goal: a wrong value of any option of any command ends it with status 2, and one line that names
# the option. Method: every option, values that its type cannot take, or that are beyond its limits.
def test_wrong_values_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("work began")

    monkeypatch.setattr("farandole.cli.run.launch", start)
    calls = list(wrong_calls())
    random.Random(SEED).shuffle(calls)
    assert len(calls) > 500
    for command, option, value in calls:
        words = [*command.split(), *needed(command, tmp_path)]
        # The last value holds; what follows `true` would be its arguments.
        words.insert(-1 if command == "run" else len(words), f"{long_name(option)}={value}")
        result = invoke(*words)
        said = result.output
        what = f"{words}: status {result.exit_code}, {said}{result.exception!r}"
        assert result.exit_code == 2, what
        assert result.exception is None or isinstance(result.exception, SystemExit), what
        assert "Traceback" not in said, what
        assert long_name(option).lstrip("-").split("-")[0] in said.lower(), what
        line = said.strip().splitlines()[-1]
        assert line.startswith(("Error: ", "farandole: ")), what
        assert len(line) < 1000, what


def test_the_fuzz_tries_every_kind_of_option() -> None:
    tried = {(command, long_name(option)) for command, option, _ in wrong_calls()}
    for command, name in (
        ("run", "--ranks"),
        ("run", "--timeout"),
        ("plan", "--bytes"),
        ("sweep scaling", "--ranks"),
        ("bench", "--json"),
        ("simulate training", "--model"),
        ("tune", "--seconds"),
        ("trace merge", "--output"),
        ("verify", "--spot"),
    ):
        assert (command, name) in tried


# Goal: a name means the same in all commands. Method: the table of all options; a short name has
# one long name everywhere, a long one takes a value everywhere or nowhere, of one kind.
def test_one_name_means_one_thing() -> None:
    long_names, kinds = defaultdict(set), defaultdict(set)
    for command in COMMANDS.values():
        for option in options_of(command):
            name = long_name(option)
            kinds[name].add((bool(option.is_flag), metavar_of(option) == "FILE"))
            for short in option.opts:
                if not short.startswith("--"):
                    long_names[short].add(name)
    assert {short: names for short, names in long_names.items() if len(names) > 1} == {}
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
    assert long_names["-b"] == {"--begin"}
    assert long_names["-o"] == {"--output"}
    assert {"-n", "-m", "-e", "-f"} <= set(long_names)


@pytest.mark.parametrize("command", ["", *COMMANDS, "simulate", "sweep", "trace"])
def test_short_help_is_help(command: str) -> None:
    words = command.split()
    short, long = invoke(*words, "-h"), invoke(*words, "--help")
    assert short.exit_code == long.exit_code == 0
    assert short.output == long.output
    assert "-h, --help" in short.output


# Goal: a shell completes commands, options, and values that are one of a few. Method: what the
# shell's own script asks, for bash.
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("farandole pl", "plan"),
        ("farandole sweep ma", "map"),
        ("farandole plan --mach", "--machine"),
        ("farandole plan --machine sum", "summit"),
        ("farandole bench allr", "allreduce"),
        ("farandole bench allreduce --transport s", "shm"),
        ("farandole simulate training --model vgg1", "vgg16"),
    ],
)
def test_completion(line: str, expected: str) -> None:
    environment = {
        "_FARANDOLE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    done = subprocess.run(
        PROGRAM, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert expected in done.stdout.split(), done.stderr


def test_completion_is_shown_and_installed() -> None:
    environment = os.environ | {"_FARANDOLE_COMPLETE": "source_bash"}
    done = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, timeout=60)
    assert "complete -o default" in done.stdout
    assert "_FARANDOLE_COMPLETE=complete_bash" in done.stdout
    text = invoke("--help").output
    assert "--show-completion" in text
    assert "--install-completion" in text


# Goal: whatever writes JSON to a file prints it with `-`, and nothing besides; `--json` alone means
# the same. Method: every command that has the option and needs no ranks.
@pytest.mark.parametrize(
    "command",
    [
        name
        for name, command in COMMANDS.items()
        if any("--json" in option.opts for option in options_of(command))
        and name not in ("bench", "probe", "trace summary")
    ],
)
def test_json_goes_to_a_file_or_to_standard_output(command: str, tmp_path: Path) -> None:
    words, file = [*command.split(), *needed(command, tmp_path)], tmp_path / "out.json"
    printed, alone = invoke(*words, "--json", "-"), invoke(*words, "--json")
    written = invoke(*words, "--json", str(file))
    assert printed.exit_code == alone.exit_code == written.exit_code == 0, printed.output
    kept = json.loads(file.read_text())
    assert type(json.loads(printed.stdout)) is type(json.loads(alone.stdout)) is type(kept)
    assert not written.stdout.startswith(("{", "["))
    if command not in ("topo", "doctor", "simulate collective"):  # these look at a clock
        assert json.loads(printed.stdout) == json.loads(alone.stdout) == kept


def test_json_alone_is_followed_by_other_options() -> None:
    rows = json.loads(invoke("plan", "--json", "-n", "4", "-m", "abci").stdout)
    assert rows["ranks"] == 4


# Goal: a file that cannot be written is found before the work. Method: work that fails the test.
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (name, long_name(option))
        for name, command in COMMANDS.items()
        for option in options_of(command)
        if metavar_of(option) == "FILE"
    ],
)
def test_unwritable_files_are_found_before_the_work(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("work began")

    for place in ("farandole.machines.load", "farandole.cli.run.launch", "farandole._native.plan"):
        monkeypatch.setattr(place, work)
    monkeypatch.setattr("farandole.trace.timeline.load_all", work)
    (tmp_path / "file").write_text("kept")
    result = invoke(*command.split(), *needed(command, tmp_path), option, "/no/such/place/file")
    assert result.exit_code == 2, result.output
    assert "cannot write /no/such/place/file: No such file or directory" in result.output


def test_looking_at_a_file_leaves_it_as_it_is(tmp_path: Path) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.write_text("kept")
    for file in (there, absent):
        assert invoke("topo", "-m", "no-such", "--svg", str(file)).exit_code == 2
    assert there.read_text() == "kept"
    assert not absent.exists()


# Goal: a pipe has a line per row, whole; a terminal rows as wide as it is.
# Method: a pipe, and a pseudo-terminal of a given width.
def test_a_pipe_has_whole_rows() -> None:
    done = subprocess.run([*PROGRAM, "algorithms"], capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    for row in _native.algorithms():
        assert any(row["name"] in line and row["summary"] in line for line in lines), row
    assert len([line for line in lines if line.strip()]) == len(_native.algorithms()) + 2
    assert all(line == line.rstrip() for line in lines)
    settings = invoke("settings", COLUMNS="40").output
    assert all(row["help"] in settings for row in _native.settings())
    drawing = invoke("explain", "allreduce", "--algorithm", "ring", "-n", "8", COLUMNS="40").output
    assert max(map(len, drawing.splitlines())) > 80


@pytest.mark.parametrize(("terminal", "columns", "expected"), [(100, "", 100), (100, "140", 140)])
def test_a_terminal_has_rows_of_its_width(terminal: int, columns: str, expected: int) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, terminal, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {"TERM": "xterm", **({"COLUMNS": columns} if columns else {})}
    process = subprocess.Popen(
        [*PROGRAM, "settings"], stdin=its, stdout=its, stderr=subprocess.PIPE, env=environment
    )
    os.close(its)
    text = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux says so where the other side is closed
            break
        if not data:
            break
        text += data
    os.close(ours)
    process.communicate(timeout=60)
    rows = text.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, rows)) == expected


# Goal: what would need more memory than there is, or more processes than make sense, is refused
# before anything is started, in words.
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run -n 1000000 true", "'--ranks'"),
        ("bench allreduce -n 1000000", "'--ranks'"),
        ("bench allreduce -e 900TiB", "--end asks 2 ranks here to hold"),
        ("tune -o {folder}/t -n 2 -e 900TiB", "--end asks 2 ranks here to hold"),
        ("probe -o {folder}/t -n 2 -e 900TiB", "--end asks 2 ranks here to hold"),
        ("sweep scaling -m abci --ranks 1000000", f"of {RANKS_MAX} at most"),
        ("simulate coordinator --ranks 27600 --tensors 100000", "need 6"),
        ("plan -n 1000000 -m abci", "'--ranks'"),
        ("verify --spot 1000000", "'--spot'"),
    ],
)
def test_sizes_have_limits(arguments: str, message: str, tmp_path: Path) -> None:
    result = invoke(*arguments.format(folder=tmp_path).split())
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_more_than_8_ranks_per_core_need_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    from farandole.launch.launcher import LaunchError, refuse_crowding

    monkeypatch.setattr("farandole.launch.launcher.usable_cores", lambda: [0, 1, 2])
    refuse_crowding(24, oversubscribe=False)
    refuse_crowding(2500, oversubscribe=True)
    with pytest.raises(LaunchError, match=r"25 ranks on 3 cores .* --oversubscribe") as refused:
        refuse_crowding(25, oversubscribe=False)
    assert refused.value.status == 2


# Goal: a host with thousands of ranks can be planned for. Method: a child that may not have the
# memory for a table of routes for each rank, 800 MB.
def test_a_host_of_thousands_of_ranks() -> None:
    script = (
        "import resource\n"
        "from farandole import _native\n"
        "machine = _native.default_machine(10_000, 1)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, -1))\n"
        "print(_native.predict(machine, 'allreduce', 'ring', 0, 10_000)['seconds'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    machine = _native.default_machine(10, 1)
    few = _native.predict(machine, "allreduce", "ring", 0, 10)["seconds"]
    assert float(done.stdout) / few == pytest.approx(9999 / 9)


def test_memory_that_is_not_there_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(_native, "plan", refuse)
    result = invoke("plan", "-n", "2", "-m", "abci")
    assert (result.exit_code, result.output) == (1, "farandole: out of memory (std::bad_alloc)\n")


def test_endless_files_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="more than 16 MiB"):
        machines.load("/dev/zero")


# Goal: a variable that looks like ours and is none is told, once, with the nearest one.
def test_unknown_variables_are_named() -> None:
    result = invoke("algorithms", "--json", FARANDOLE_TIMOUT="7", HOROVOD_TIMELIN="x")
    assert result.stderr.count("warning") == 1
    assert "FARANDOLE_TIMOUT is no setting" in result.stderr
    assert "nearest is FARANDOLE_TIMEOUT" in result.stderr
    json.loads(result.stdout)
    assert invoke("algorithms", FARANDOLE_TIMEOUT="7").stderr == ""


def test_a_full_disk_is_said_in_a_line() -> None:
    result = invoke("plan", "-n", "2", "-m", "abci", "--json", "/dev/full")
    assert (result.exit_code, result.stderr) == (1, "farandole: No space left on device\n")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "algorithms"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
