# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole run` starts every rank with what it needs, passes on what it should, reports
what went wrong, and leaves no process behind, however the job ends.

Method: real processes that need no native module. Each run carries a mark in its environment, by
which everything it started is found in /proc, whatever the launcher itself believes.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import DEADLINE_SECONDS, Job, process_state, wait_for_states

Start = Callable[..., Job]
Write = Callable[[str], Path]

# One short write, so that lines of several ranks do not mix.
PRINT_ENVIRONMENT = """
import json, os, pathlib
ours = ("FARANDOLE_", "RANK", "WORLD_", "LOCAL_", "MASTER_", "OMP_", "ONE")
report = {"env": {name: value for name, value in os.environ.items() if name.startswith(ours)},
          "argv": pathlib.Path("/proc/self/cmdline").read_text()}
os.write(1, (json.dumps(report) + "\\n").encode())
"""

# Rank 0 says "ready" once every rank has set up its handlers; ranks meet at the job's listener.
# say() is one write, so that lines of several ranks do not mix, and is safe in a handler.
MEET = """
import os, select, signal, socket, sys
rank, size = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_SIZE"])
host, port = os.environ["FARANDOLE_RENDEZVOUS"].split(":")
def say(text):
    os.write(1, f"{text}\\n".encode())
def meet():
    if rank == 0:
        server = socket.socket(fileno=int(os.environ["FARANDOLE_LISTEN_FD"]))
        peers = [server.accept()[0] for _ in range(size - 1)]
        for peer in peers:
            peer.recv(1)
        say("ready")
        for peer in peers:
            peer.send(b"g")
        return peers
    peer = socket.create_connection((host, int(port)))
    peer.send(b"h")
    peer.recv(1)
    return [peer]
"""


def environment_bytes(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def not_running(pid: int) -> bool:
    try:
        return process_state(pid) in "ZX"
    except FileNotFoundError:
        return True


def environments(job: Job) -> list[dict[str, str]]:
    assert job.finish() == 0, job.stderr
    rows = [json.loads(line)["env"] for line in job.stdout.splitlines()]
    return sorted(rows, key=lambda row: int(row["FARANDOLE_RANK"]))


def test_every_rank_learns_its_place(start: Start, write: Write) -> None:
    rows = environments(start("-n", "3", write(PRINT_ENVIRONMENT)))
    assert len(rows) == 3
    for rank, row in enumerate(rows):
        for name, value in {"RANK": rank, "SIZE": 3, "LOCAL_RANK": rank, "LOCAL_SIZE": 3}.items():
            assert row[f"FARANDOLE_{name}"] == str(value)
        assert (row["RANK"], row["WORLD_SIZE"]) == (str(rank), "3")
        assert (row["LOCAL_RANK"], row["LOCAL_WORLD_SIZE"]) == (str(rank), "3")
        assert row["MASTER_ADDR"] == "127.0.0.1"
        assert f"127.0.0.1:{row['MASTER_PORT']}" != row["FARANDOLE_RENDEZVOUS"]
        assert ("FARANDOLE_LISTEN_FD" in row) == (rank == 0)
    for shared in ("FARANDOLE_JOB", "FARANDOLE_SECRET", "FARANDOLE_RENDEZVOUS", "MASTER_PORT"):
        assert len({row[shared] for row in rows}) == 1


def test_two_jobs_share_neither_name_nor_secret(start: Start, write: Write) -> None:
    program = write(PRINT_ENVIRONMENT)
    one, two = (environments(start("-n", "1", program))[0] for _ in range(2))
    for name in ("FARANDOLE_JOB", "FARANDOLE_SECRET"):
        assert one[name] != two[name]


def test_secret_is_long_and_on_no_command_line(start: Start, write: Write) -> None:
    job = start("-n", "2", write(PRINT_ENVIRONMENT + "\ninput()"))
    row = json.loads(job.line())
    secret = row["env"]["FARANDOLE_SECRET"]
    assert len(bytes.fromhex(secret)) == 32
    seen = [Path(f"/proc/{pid}/cmdline").read_text() for pid in job.processes()]
    assert seen
    assert all(secret not in line for line in [*seen, row["argv"]])


def test_options_become_settings(start: Start, write: Write) -> None:
    job = start(
        *("-np", "1", "--transport", "tcp", "--algorithm", "ring", "--check"),
        *("--env", "ONE=1=1", "--env", "RANK=seven", write(PRINT_ENVIRONMENT)),
        OMP_NUM_THREADS="11",
    )
    row = environments(job)[0]
    assert (row["FARANDOLE_TRANSPORT"], row["FARANDOLE_ALGORITHM"]) == ("tcp", "ring")
    assert (row["FARANDOLE_CHECK"], row["ONE"], row["RANK"]) == ("1", "1=1", "seven")
    assert row["OMP_NUM_THREADS"] == "11"


def test_threads_are_shared_out(start: Start, write: Write) -> None:
    cores = len(os.sched_getaffinity(0))
    rows = environments(start("-n", str(cores + 1), write(PRINT_ENVIRONMENT)))
    assert {row["OMP_NUM_THREADS"] for row in rows} == {"1"}


def test_binding_uses_every_core_once(start: Start, write: Write) -> None:
    cores = len(os.sched_getaffinity(0))
    program = write("import os; os.write(1, f'{sorted(os.sched_getaffinity(0))}\\n'.encode())")
    job = start("-n", str(cores), "--bind", program)
    assert job.finish() == 0
    assert sorted(json.loads(line)[0] for line in job.stdout.splitlines()) == sorted(
        os.sched_getaffinity(0)
    )


def test_rank_zero_inherits_a_listening_socket(start: Start, write: Write) -> None:
    job = start("-n", "4", write(MEET + "meet()"))
    assert job.finish() == 0, job.stderr
    assert job.stdout == "ready\n"


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("exit 0", 0, ""),
        ("exit $RANK", 1, r"rank 1 \(pid \d+\) exited with status 1"),
        ("[ $RANK = 2 ] && exit 77; exit 0", 77, r"rank 2 \(pid \d+\) exited with status 77"),
        ("[ $RANK = 0 ] && kill -9 $$; exit 0", 137, r"rank 0 \(pid \d+\) was killed by SIGKILL"),
        ("[ $RANK = 1 ] && kill -ABRT $$; true", 134, r"rank 1 \(pid \d+\) was killed by SIGABRT"),
    ],
)
def test_exit_status(start: Start, script: str, status: int, message: str) -> None:
    ranks = "2" if "exit $RANK" in script else "3"
    job = start("-n", ranks, "bash", "-c", script)
    assert job.finish() == status
    assert re.search(message, job.stderr)
    if status == 0:
        assert job.stderr == ""
    assert job.processes() == []


def test_others_may_report_before_they_end(start: Start, write: Write, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    job = start(
        *("-n", "2", "--grace", "50"),
        write(
            MEET
            + f"""
peer, = meet()
if rank == 0:
    peer.send(str(os.getpid()).encode())
    sys.exit(9)
gone = os.pidfd_open(int(peer.recv(20)))
select.select([gone], [], [])
open({str(witness)!r}, "w").write("saw it")
sys.exit(4)
"""
        ),
    )
    assert job.finish() == 9  # the first one's
    assert witness.read_text() == "saw it"


# Goal: the status tells of the cause. Others see a dying rank's connections close, and may have
# exited because of it, before the kernel reports its end.
def test_a_killed_rank_is_to_blame(start: Start) -> None:
    script = "[ $RANK = 0 ] && exit 17; sleep 0.3; [ $RANK = 1 ] && kill -9 $$; sleep 0.3; exit 18"
    job = start("-n", "3", "--grace", "50", "bash", "-c", script)
    assert job.finish() == 128 + signal.SIGKILL
    assert re.search(r"rank 0 \(pid \d+\) exited with status 17", job.stderr)


# Goal: a signal that the launcher itself sends blames nobody.
def test_a_rank_that_is_ended_is_not_to_blame(start: Start) -> None:
    script = "[ $RANK = 0 ] && exit 17; sleep 1000"
    job = start("-n", "2", "--grace", "0.1", "bash", "-c", script)
    assert job.finish() == 17
    assert "sending SIGTERM to rank 1" in job.stderr


def test_stubborn_ranks_are_killed(start: Start, write: Write) -> None:
    source = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
meet()
if rank == 1:
    sys.exit(5)
while True:
    signal.pause()
"""
    job = start("-n", "3", "--grace", "0.1", write(MEET + source))
    assert job.finish() == 5
    assert "sending SIGTERM to rank 0" in job.stderr
    assert "sending SIGKILL to rank 0" in job.stderr
    assert job.processes() == []


@pytest.mark.parametrize(
    "name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU"]
)
def test_signals_reach_every_rank(start: Start, write: Write, name: str) -> None:
    source = f"""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])
keep = meet()
say(f"{{rank}} {{signal.sigwait([signal.{name}]).name}}")
"""
    job = start("-n", "3", write(MEET + source))
    assert job.line() == "ready"
    job.process.send_signal(signal.Signals[name])
    assert job.finish() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == [f"{rank} {name}" for rank in range(3)]


# Goal: a job is stopped and goes on as any command in a shell, all of it.
def test_stopping_and_going_on(start: Start, write: Write) -> None:
    source = """
peer, = meet()
if rank == 0:
    peer.send(input().encode())
peer.recv(9)
"""
    job = start("-n", "2", write(MEET + source))
    assert job.line() == "ready"
    ranks = [pid for pid in job.processes() if b"FARANDOLE_RANK=" in environment_bytes(pid)]
    assert len(ranks) == 2
    job.process.send_signal(signal.SIGTSTP)
    wait_for_states("T", [*ranks, job.process.pid])
    job.process.send_signal(signal.SIGCONT)
    wait_for_states("RSD", [*ranks, job.process.pid])
    assert job.finish(stdin="on\n") == 0, job.stderr


# Goal: a batch system's warning to all processes of a job ends neither it nor who looks after it.
def test_warnings_to_every_process_of_the_job(start: Start, write: Write) -> None:
    source = """
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard or heard.append(say("heard")))
peer, = meet()
if rank == 0:
    peer.send(input().encode())
peer.recv(9)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
"""
    job = start("-n", "2", write(MEET + source))
    assert job.line() == "ready"
    before = job.processes()
    for pid in before:
        os.kill(pid, signal.SIGUSR1)
    assert [job.line(), job.line()] == ["heard", "heard"]
    assert sorted(job.processes()) == sorted(before)
    assert job.finish(stdin="on\n") == 0, job.stderr


# Goal: SIGTERM while ranks are being started does not wait for the rest of them.
# Method: it comes with the second of many.
def test_a_signal_ends_the_start() -> None:
    script = """
import os, signal
from farandole.launch.launcher import Launcher, LaunchError, LaunchOptions, forward_signals
from farandole.launch.processes import lead_session
class Signalled(Launcher):
    started = 0
    def _start_rank(self, rank, mask):
        super()._start_rank(rank, mask)
        self.started += 1
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
lead_session()
launcher = Signalled(LaunchOptions(["sleep", "1000"], 50))
try:
    with forward_signals(launcher), launcher:
        launcher.wait()
except LaunchError as error:
    print(launcher.started, error, error.status)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert ended.stdout == "2 ended by SIGTERM before the ranks had started 143\n"


def test_interrupted_job_has_the_status_of_the_signal(start: Start, write: Write) -> None:
    source = "signal.signal(signal.SIGINT, signal.SIG_DFL)\nkeep = meet()\nsignal.pause()"
    job = start("-n", "2", write(MEET + source))
    assert job.line() == "ready"
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert "farandole:" not in job.stderr  # nobody needs to be told of his own Ctrl-C


def test_second_interrupt_kills(start: Start, write: Write) -> None:
    source = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
keep = meet()
while signal.sigwait([signal.SIGINT]):
    say("no")
"""
    job = start("-n", "2", write(MEET + source))
    assert job.line() == "ready"
    job.process.send_signal(signal.SIGINT)
    assert [job.line(), job.line()] == ["no", "no"]
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 137
    assert job.processes() == []


# Goal: the terminal's Ctrl-C comes to every rank, once, and rank 0 can read from the terminal.
# Method: a terminal of our own, whose session the launcher leads as a shell would.
def test_terminal(write: Write) -> None:
    source = """
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
keep = meet()
if rank == 0:
    say(f"read {input()} {sys.stdin.isatty()}")
while not heard:
    signal.pause()
select.select([], [], [], 0.3)
say(f"rank {rank} heard {len(heard)}")
"""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "farandole.cli", "run", "-n", "2", "--timeout", "30"]
    with subprocess.Popen(
        ["setsid", "--ctty", "env", "--default-signal", *command, write(MEET + source)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as launcher:
        os.close(theirs)
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            lines = io.BufferedReader(terminal)
            assert lines.readline() == b"ready\r\n"
            terminal.write(b"word\n")
            assert [lines.readline(), lines.readline()] == [b"word\r\n", b"read word True\r\n"]
            terminal.write(b"\x03")
            said = sorted(lines.readline().removeprefix(b"^C").strip() for _ in range(2))
            assert said == [b"rank 0 heard 1", b"rank 1 heard 1"]
            assert launcher.wait(DEADLINE_SECONDS) == 0


# Goal: ranks that share cores give way to each other. Linux shares out processors by session
# first (sched(7), autogroup), so they have one in common; it is not the caller's, since what is
# left in it gets killed.
def test_ranks_share_a_session_of_their_own(start: Start) -> None:
    script = "echo $(ps -o sid=,pgid= -p $$) $$"
    job = start("-n", "3", "bash", "-c", script)
    assert job.finish() == 0
    sessions, groups, pids = zip(*map(str.split, job.stdout.splitlines()), strict=True)
    assert groups == pids
    assert len(set(sessions)) == 1
    assert int(sessions[0]) != job.process.pid


# Goal: a session of which the launcher is a guest, such as a shell's, is not swept.
def test_a_guest_of_a_session_starts_nothing() -> None:
    script = """
from farandole.launch.launcher import Launcher, LaunchOptions
Launcher(LaunchOptions(["true"], 1)).start()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert ended.returncode == 1
    assert "leads no session" in ended.stderr


def test_time_limit(start: Start) -> None:
    job = start("-n", "2", "--timeout", "0.2", "sleep", "1000")
    assert job.finish() == 124
    assert "time limit" in job.stderr
    assert job.processes() == []


def test_prefixed_lines_are_whole(start: Start, write: Write) -> None:
    # Pieces of lines, from all ranks at once, far more than a pipe holds.
    source = """
import os, sys
letter = "abcd"[int(os.environ["RANK"])]
for i in range(2000):
    for _ in range(5):
        os.write(1, letter.encode() * 97)
    os.write(1, b"\\n")
sys.stderr.write("complaint " + letter)  # no end of line
"""
    job = start("-n", "4", "--prefix-output", write(source))
    assert job.finish() == 0
    lines = job.stdout.splitlines()
    assert len(lines) == 4 * 2000
    for rank, letter in enumerate("abcd"):
        assert lines.count(f"[{rank}] " + letter * 485) == 2000
    assert sorted(job.stderr.splitlines()) == [f"[{r}] complaint {c}" for r, c in enumerate("abcd")]


def test_output_is_not_coloured_away_from_a_terminal(start: Start) -> None:
    job = start("-n", "2", "-p", "echo", "plain")
    assert job.finish() == 0
    assert sorted(job.stdout.splitlines()) == ["[0] plain", "[1] plain"]


def test_very_long_line_takes_bounded_memory(start: Start, write: Write) -> None:
    source = "import os\nfor _ in range(80): os.write(1, b'x' * 65536)"
    job = start("-n", "1", "-p", write(source))
    assert job.finish() == 0
    assert job.stdout.replace("\n[0] ", "").strip() == "[0] " + "x" * (80 * 65536)


def test_reader_that_goes_ends_the_writers(start: Start) -> None:
    job = start("-n", "2", "-p", "--grace", "0", "yes")
    assert job.line() in ("[0] y", "[1] y")
    assert job.process.stdout is not None
    job.process.stdout.close()
    assert job.process.wait(60) == 128 + signal.SIGPIPE
    assert job.processes() == []


def test_output_files(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "logs"
    job = start("-n", "2", "--output-dir", folder, "bash", "-c", "echo o$RANK; echo e$RANK >&2")
    assert job.finish() == 0
    assert (job.stdout, job.stderr) == ("", "")
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert texts == {
        f"rank-{rank}.{kind}": f"{kind[0]}{rank}\n" for rank in (0, 1) for kind in ("out", "err")
    }


def test_only_rank_zero_reads_the_standard_input(start: Start) -> None:
    job = start("-n", "3", "bash", "-c", "echo $RANK:$(readlink /proc/$$/fd/0):$(cat)")
    assert job.finish(stdin="hello") == 0
    first, *others = sorted(job.stdout.splitlines())
    assert first.startswith("0:pipe:")
    assert first.endswith(":hello")
    assert others == ["1:/dev/null:", "2:/dev/null:"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-n", "2", "no-such-command-here"], 127, "command not found: no-such-command-here"),
        (["-n", "2", "no/such/file.py"], 127, "no file no/such/file.py"),
        (["-n", "0", "true"], 2, "greater than or equal to 1"),
        (["-n", "two", "true"], 2, "valid integer"),
        (["true"], 2, "Missing option"),
        (["-n", "2"], 2, "Missing argument"),
        (["-n", "2", "--env", "A", "true"], 2, "NAME=VALUE, not 'A'"),
        (["-n", "2", "-p", "--output-dir", "x", "true"], 2, "not both"),
    ],
)
def test_mistakes_are_named(start: Start, arguments: list[str], status: int, message: str) -> None:
    job = start(*arguments)
    assert job.finish() == status
    assert message in job.stderr


def test_file_that_cannot_be_executed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no program")
    job = start("-n", "2", tmp_path / "notes")
    assert job.finish() == 126
    assert "notes is not executable" in job.stderr
    (tmp_path / "notes").chmod(0o755)
    job = start("-n", "2", tmp_path / "notes")
    assert job.finish() == 126
    assert "Exec format error" in job.stderr


def test_arguments_after_the_command_are_the_commands(start: Start) -> None:
    job = start("-n", "1", "echo", "-n", "2", "--timeout", "x")
    assert job.finish() == 0
    assert job.stdout == "2 --timeout x"


def test_what_a_rank_leaves_running_is_ended(start: Start) -> None:
    job = start("-n", "2", "bash", "-c", "sleep 1000 & trap '' HUP; (sleep 1000 &); exit 0")
    assert job.finish() == 0
    assert job.processes() == []


# A shell that no signal of the session reaches, that says its pid, and waits.
DAEMON = "setsid bash -c 'echo $$ && {trap} exec sleep 1000' </dev/null 2>/dev/null &"


# Goal: a daemon of a rank ends with the job: one that left the session, one that knows nothing of
# it either, and one that does not mind SIGTERM.
@pytest.mark.parametrize(
    ("before", "trap"), [("", ""), ("env -i ", ""), ("nohup ", 'trap "" TERM;')]
)
def test_daemons_are_ended(start: Start, before: str, trap: str) -> None:
    job = start("-n", "1", "bash", "-c", f"({before}{DAEMON.format(trap=trap)}); read word")
    daemon = int(job.line())
    assert process_state(daemon) in "RSD"
    assert job.finish(stdin="end\n") == 0
    assert not_running(daemon)
    assert job.processes() == []


# Goal: it is asked before it is killed. Method: it says so to a file.
def test_daemons_may_say_goodbye(start: Start, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    trap = f'trap "echo bye >{witness}; exit" TERM; echo up;'
    daemon = f"(setsid bash -c '{trap} while sleep 0.05; do :; done' </dev/null &)"
    job = start("-n", "1", "bash", "-c", f"{daemon}; read word")
    assert job.line() == "up"
    assert job.finish(stdin="end\n") == 0
    assert witness.read_text() == "bye\n"


# Goal: orphans leave no zombies to the launcher, also those that end while it still starts ranks.
@pytest.mark.parametrize("ranks", [1, 16])
def test_orphans_are_reaped(start: Start, ranks: int) -> None:
    source = "((FARANDOLE_RANK)) || (true & echo $!); exec sleep 1000"
    job = start("-n", str(ranks), "bash", "-c", source)
    orphan = Path(f"/proc/{int(job.line())}")
    end = time.monotonic() + DEADLINE_SECONDS
    while orphan.exists():
        assert time.monotonic() < end, "the orphan is still a zombie"
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 128 + signal.SIGTERM


# Goal: SIGTERM ends a job whose ranks do not mind it, after the grace.
def test_sigterm_escalates(start: Start, write: Write) -> None:
    source = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nkeep = meet()\nselect.select([], [], [])"
    )
    job = start("-n", "2", "--grace", "0.3", write(MEET + source))
    assert job.line() == "ready"
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 128 + signal.SIGKILL
    assert re.search(r"sending SIGKILL to rank 0 \(pid \d+\), rank 1", job.stderr)
    assert job.processes() == []


@pytest.mark.parametrize("wrap", [False, True], ids=["plain", "prefixed"])
def test_ranks_die_with_a_killed_launcher(start: Start, write: Write, wrap: bool) -> None:
    source = "keep = meet()\nwhile True:\n    signal.pause()"
    job = start("-n", "3", *(["-p"] if wrap else []), write(MEET + source))
    assert job.line().endswith("ready")
    assert len(job.processes()) > 3
    job.process.kill()
    assert job.wait_until_gone(10) == []


def test_all_that_ranks_started_dies_with_a_killed_launcher(start: Start) -> None:
    # Nothing here knows of us: the shells die with the launcher, what they started is orphaned.
    orphan = "(trap '' TERM HUP; sleep 1000) & (setsid sleep 1000 &) ; (setsid bash -c"
    job = start("-n", "2", "bash", "-c", f"{orphan} 'sleep 1000; :' &) ; echo up; sleep 1000; :")
    assert [job.line(), job.line()] == ["up", "up"]
    job.process.kill()
    assert job.wait_until_gone(10) == []
