# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole run` starts ranks on other hosts as on its own: they find each other, their
output, failures and signals travel, and however the job or a connection ends, no process stays on
any host. What is wrong with a host is said with its name.

Method: real processes; a stand-in for ssh runs the remote side on this machine, in a network
namespace per host or with an identity of its own per host. It passes bytes on and nothing else, as
ssh does. The last tests use ssh itself, with a server of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PROGRAMS
from launched import MARK, Job, marked_processes, wait_for_states

from farandole.launch.agent import HELLO_MARK, Frames, frame
from namespaces import Hosts

Start = Callable[..., Job]
Write = Callable[[str], Path]

STAND_IN = f"{sys.executable} {PROGRAMS / 'stand_in_for_ssh.py'}"
PLACES = PROGRAMS / "places.py"
# Addresses of this machine, which ssh would connect to as to any other.
TWO_BY_TWO = ("-n", "4", "-H", "127.0.0.2:2,127.0.0.3:2")
PRINT_ENVIRONMENT = "import json, os; os.write(1, (json.dumps(dict(os.environ)) + '\\n').encode())"


@pytest.fixture
def run(start: Start) -> Start:
    """run(*arguments, **environment): as start(), with the stand-in for ssh."""
    return lambda *arguments, **environment: start(
        "--ssh-command", STAND_IN, *arguments, **environment
    )


def places(hosts: tuple[str, ...], ranks_per_host: int) -> list[str]:
    size = len(hosts) * ranks_per_host
    total = [float(sum(range(size)) + size * i) for i in range(3)]
    return [
        f"rank {rank} of {size}: local {rank % ranks_per_host} of {ranks_per_host}, "
        f"cross {rank // ranks_per_host} of {len(hosts)}, "
        f"sum {total}, on {hosts[rank // ranks_per_host]}"
        for rank in range(size)
    ]


def command_lines(job: Job) -> dict[int, list[str]]:
    """By pid, of everything that the job has started."""
    lines = {}
    for pid in job.processes():
        with contextlib.suppress(OSError):
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return lines


def connections(job: Job, ssh: str = "stand_in_for_ssh.py") -> list[int]:
    """Pids of what stands for ssh."""
    lines = command_lines(job).items()
    return [p for p, words in lines if any(word.endswith(ssh) for word in words[:2])]


def agents(job: Job) -> list[int]:
    """Those that start ranks, not those that lead_session() makes wait for them."""
    all_pids = [pid for pid, words in command_lines(job).items() if words[-1:] == ["agent"]]
    return [pid for pid in all_pids if parent_of(pid) in all_pids]


def parent_of(pid: int) -> int:
    return int(re.findall(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[0])


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def environments(job: Job) -> list[dict[str, str]]:
    assert job.finish() == 0, job.stderr
    rows = [json.loads(line) for line in job.stdout.splitlines()]
    return sorted(rows, key=lambda row: int(row["RANK"]))


# Goal: ranks on two hosts add up arrays and know their places.
def test_two_hosts_of_two_ranks(run: Start) -> None:
    job = run(*TWO_BY_TWO, PLACES)
    assert job.finish() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == places(("127.0.0.2", "127.0.0.3"), 2)
    assert job.stderr == ""
    assert job.processes() == []


# Goal: so they do on this machine and another, whichever has rank 0.
@pytest.mark.parametrize("hosts", ["localhost:2,127.0.0.2:2", "127.0.0.2:2,localhost:2"])
def test_this_machine_takes_part(run: Start, hosts: str) -> None:
    job = run("-n", "4", "-H", hosts, "-p", PLACES)
    assert job.finish() == 0, job.stderr
    names = tuple("here" if "local" in part else "127.0.0.2" for part in hosts.split(","))
    expected = [f"[{i}] {line}" for i, line in enumerate(places(names, 2))]
    assert sorted(job.stdout.splitlines()) == expected


# Goal: so they do on hosts that share no loopback interface, from a launcher on none of them.
def test_hosts_with_networks_of_their_own(run: Start, hosts: Hosts) -> None:
    names = tuple(f"10.77.0.{i + 1}" for i in range(3))
    listed = ",".join(f"{name}:2" for name in names)
    job = run("-n", "6", "-H", listed, PLACES, STAND_IN_NAMESPACES=hosts.mark)
    assert job.finish() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == places(names, 2)


# Goal: hosts are filled in turn; one that gets no rank is not contacted; one alone is a job of its
# own; the names of ranks reach torch as well.
def test_hosts_are_filled_in_turn(run: Start, write: Write, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\nalpha slots=2\n\nbeta:4  # half of it\nunreachable:8\n")
    rows = environments(run("-np", "4", "--hostfile", hostfile, write(PRINT_ENVIRONMENT)))
    assert [row["OF_HOST"] for row in rows] == ["alpha", "alpha", "beta", "beta"]
    assert [row["FARANDOLE_LOCAL_RANK"] for row in rows] == ["0", "1", "0", "1"]
    assert {row["FARANDOLE_LOCAL_SIZE"] for row in rows} == {"2"}
    assert {row["LOCAL_WORLD_SIZE"] for row in rows} == {"2"}
    assert {row["FARANDOLE_RENDEZVOUS"].split(":")[0] for row in rows} == {"alpha"}
    assert {row["MASTER_ADDR"] for row in rows} == {"alpha"}
    for shared in ("FARANDOLE_JOB", "FARANDOLE_SECRET", "FARANDOLE_RENDEZVOUS", "MASTER_PORT"):
        assert len({row[shared] for row in rows}) == 1
    alone = environments(run("-n", "2", "-H", "alpha:2", write(PRINT_ENVIRONMENT)))
    assert {row["MASTER_ADDR"] for row in alone} == {"127.0.0.1"}


# Goal: the environment of ranks is their host's, with what travels and what --env sets.
def test_what_travels(run: Start, write: Write) -> None:
    job = run(
        *("-n", "2", "-H", "alpha:1,beta:1", "--env", "SPECIAL=a 'b' $c", write(PRINT_ENVIRONMENT)),
        **{
            "NCCL_DEBUG": "WARN",
            "FARANDOLE_LOG": "error",
            "PRIVATE": "no",
            "FARANDOLE_HOST_ID": "x",
        },
        **{"FARANDOLE_SECRET": "mine", "OMP_NUM_THREADS": "5"},
    )
    for row, host in zip(environments(job), ("alpha", "beta"), strict=True):
        assert (row["NCCL_DEBUG"], row["FARANDOLE_LOG"]) == ("WARN", "error")
        assert (row["SPECIAL"], row["OMP_NUM_THREADS"]) == ("a 'b' $c", "5")
        assert row["FARANDOLE_HOST_ID"] == host
        assert "PRIVATE" not in row
        assert row["FARANDOLE_SECRET"] != "mine"
        ours, theirs = os.environ["PATH"], "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        assert row["PATH"] == (ours if ours == theirs else f"{ours}:{theirs}")


# Goal: ranks run where the launcher was called. Method: the stand-in starts commands in /.
def test_working_directory(run: Start) -> None:
    job = run("-n", "2", "-H", "alpha:1,beta:1", "pwd")
    assert job.finish() == 0, job.stderr
    assert job.stdout.splitlines() == [str(Path.cwd())] * 2


# Goal: nobody who can list processes learns the secret. Method: while the job runs, read what
# Linux shows of every process there is, and the environment of all that stand for ssh.
def test_secret_does_not_show(run: Start, write: Write) -> None:
    source = PRINT_ENVIRONMENT + "\nimport signal; signal.pause()"
    job = run(*TWO_BY_TWO, write(source), FARANDOLE_SECRET="given")
    secret = json.loads(job.line())["FARANDOLE_SECRET"]
    assert len(bytes.fromhex(secret)) == 32
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            assert secret not in (folder / "cmdline").read_text()
    assert len(connections(job)) == len(agents(job)) == 2
    for pid in connections(job) + agents(job):
        assert not any(secret in value for value in environment_of(pid))
        assert not any(value.startswith("FARANDOLE_SECRET") for value in environment_of(pid))
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 128 + signal.SIGTERM


# Goal: a remote rank that fails ends the job with its status, named with its host.
def test_status_of_a_failing_remote_rank(run: Start) -> None:
    script = "[ $RANK = 3 ] && exit 77; trap '' TERM; while :; do sleep 0.1; done"
    job = run(*TWO_BY_TWO, "--grace", "0.2", "bash", "-c", script)
    assert job.finish() == 77
    assert re.search(r"host 127.0.0.3: rank 3 \(pid \d+\) exited with status 77", job.stderr)
    assert re.search(r"host 127.0.0.2: sending SIGTERM to rank 0 .*, rank 1 ", job.stderr)
    assert "host 127.0.0.2: sending SIGKILL to rank 0" in job.stderr
    assert job.processes() == []


@pytest.mark.parametrize("script", ["kill -SEGV $$", "kill -9 $$"])
def test_remote_rank_killed_by_a_signal(run: Start, script: str) -> None:
    job = run(*TWO_BY_TWO, "bash", "-c", f"[ $RANK = 2 ] && {script}; exit 0")
    name = script.split("-")[1].split()[0].replace("9", "KILL")
    assert job.finish() == 128 + signal.Signals[f"SIG{name}"]
    assert f"was killed by SIG{name}" in job.stderr


def test_a_killed_rank_is_to_blame(run: Start) -> None:
    script = "[ $RANK = 0 ] && exit 17; sleep 0.5; [ $RANK = 3 ] && kill -9 $$; exit 18"
    job = run(*TWO_BY_TWO, "--grace", "50", "bash", "-c", script)
    assert job.finish() == 128 + signal.SIGKILL
    assert re.search(r"rank 0 \(pid \d+\) exited with status 17", job.stderr)


# Goal: signals reach all ranks, everywhere, once.
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_signals_reach_every_host(run: Start, write: Write, name: str) -> None:
    source = f"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])
os.write(1, b"ready\\n")
got = signal.sigwait([signal.{name}])
assert not signal.sigtimedwait([got], 0.5)
os.write(1, (os.environ["RANK"] + got.name + "\\n").encode())
"""
    job = run(*TWO_BY_TWO, write(source))
    assert [job.line() for _ in range(4)] == ["ready"] * 4
    job.process.send_signal(signal.Signals[name])
    assert job.finish() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == [f"{rank}{name}" for rank in range(4)]


# Goal: a job is stopped and goes on everywhere, and the command with it, as a shell expects.
def test_stopping_and_going_on(run: Start, write: Write) -> None:
    source = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.write(1, f"{os.getpid()}\\n".encode())
signal.sigwait([signal.SIGUSR1])
"""
    job = run("-n", "2", "-H", "127.0.0.2,127.0.0.3", write(source))
    pids = [*(int(job.line()) for _ in range(2)), job.process.pid]
    job.process.send_signal(signal.SIGTSTP)
    wait_for_states("T", pids)
    job.process.send_signal(signal.SIGCONT)
    wait_for_states("RSD", pids)
    job.process.send_signal(signal.SIGUSR1)
    assert job.finish() == 0, job.stderr


def test_second_interrupt_kills(run: Start) -> None:
    script = "trap 'echo no' INT; echo up; while :; do sleep 0.05; done"
    job = run(*TWO_BY_TWO, "bash", "-c", script)
    assert [job.line() for _ in range(4)] == ["up"] * 4
    job.process.send_signal(signal.SIGINT)
    assert [job.line() for _ in range(4)] == ["no"] * 4
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 137
    assert job.processes() == []


def test_time_limit(run: Start) -> None:
    job = run(*TWO_BY_TWO, "--timeout", "0.5", "sleep", "1000")
    assert job.finish() == 124
    assert "time limit" in job.stderr
    assert job.processes() == []


# Goal: output arrives whole, where it was asked for, and no rank has an input.
def test_output(run: Start, tmp_path: Path) -> None:
    script = "for i in {1..3000}; do echo out$RANK$i; done; printf err$RANK >&2; cat"
    job = run(*TWO_BY_TWO, "-p", "bash", "-c", script)
    assert job.finish(stdin="to nobody") == 0, job.stderr
    lines = job.stdout.splitlines()
    for rank in range(4):
        own = [line for line in lines if line.startswith(f"[{rank}]")]
        assert own == [f"[{rank}] out{rank}{i}" for i in range(1, 3001)]
    assert sorted(job.stderr.splitlines()) == [f"[{rank}] err{rank}" for rank in range(4)]
    folder = tmp_path / "logs"
    job = run(*TWO_BY_TWO, "--output-dir", folder, "bash", "-c", "echo o$RANK; echo e$RANK >&2")
    assert job.finish() == 0
    assert (job.stdout, job.stderr) == ("", "")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        f"rank-{r}.{kind}": f"{kind[0]}{r}\n" for r in range(4) for kind in ("out", "err")
    }


def test_reader_that_goes_ends_the_writers(run: Start) -> None:
    job = run(*TWO_BY_TWO, "yes")
    assert job.line() == "y"
    assert job.process.stdout is not None
    job.process.stdout.close()
    assert job.process.wait(60) == 128 + signal.SIGPIPE
    assert job.wait_until_gone(5) == []


# Goal: a killed launcher leaves nothing on any host, not even what ranks started and that ignores
# polite signals. Method: bash and its children know nothing of us.
@pytest.mark.parametrize("hosts", ["127.0.0.2:2,127.0.0.3:2", "localhost:2,127.0.0.2:2"])
def test_nothing_outlives_a_killed_launcher(run: Start, hosts: str) -> None:
    script = "(trap '' TERM HUP; sleep 1000) & (setsid sleep 1000 &) ; echo up; sleep 1000; :"
    job = run("-n", "4", "-H", hosts, "bash", "-c", script)
    assert [job.line() for _ in range(4)] == ["up"] * 4
    assert len(job.processes()) > 12
    job.process.kill()
    assert job.wait_until_gone(10) == []


# Goal: a lost connection ends the ranks behind it, and the job with a word on which host it was.
def test_killed_ssh_ends_its_host_and_the_job(run: Start) -> None:
    job = run(*TWO_BY_TWO, "--grace", "0.2", "bash", "-c", "echo up; sleep 1000; :")
    assert [job.line() for _ in range(4)] == ["up"] * 4
    (ssh,) = [pid for pid in connections(job) if "127.0.0.3" in command_lines(job)[pid]]
    os.kill(ssh, signal.SIGKILL)
    assert job.finish() == 255
    assert "host 127.0.0.3: the connection was lost" in job.stderr
    assert "was killed by SIGKILL" in job.stderr
    assert "host 127.0.0.2: sending SIGTERM" in job.stderr
    assert job.wait_until_gone(5) == []


# Goal: an agent that is killed takes its ranks with it, and is missed, as is the process that
# waits for it.
@pytest.mark.parametrize("victim", ["agent", "its parent"])
def test_killed_agent(run: Start, victim: str) -> None:
    job = run(*TWO_BY_TWO, "--grace", "0.2", "bash", "-c", "echo up; sleep 1000; :")
    assert [job.line() for _ in range(4)] == ["up"] * 4
    (agent,) = [pid for pid in agents(job) if "OF_HOST=127.0.0.3" in environment_of(pid)]
    os.kill(agent if victim == "agent" else parent_of(agent), signal.SIGKILL)
    assert job.finish() == 255
    assert "host 127.0.0.3: the connection was lost" in job.stderr
    assert job.wait_until_gone(5) == []


# Goal: an agent that hears nothing for too long, as when a network is cut, ends its ranks; pings
# are enough to keep it. Method: an agent of less patience, spoken to by hand.
def test_agent_does_not_outlive_a_dead_network() -> None:
    patience_seconds = 1.0
    script = f"""
import farandole.launch.agent as ours
ours.SILENCE_SECONDS_MAX = {patience_seconds}
ours.serve()
"""
    job = frame(
        "job",
        **{"directory": "/", "local_sizes": [1], "host": 0, "bind": False},
        **{"command": ["bash", "-c", "echo $$; sleep 1000; :"], "addresses": ["localhost"]},
        **{"environment": {}, "own_environment": {}, "job_id": "j", "secret": "00"},
        grace_seconds=5.0,
        oversubscribe=False,
    )
    mark = uuid.uuid4().hex
    agent = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(job + frame("start", address="localhost", port=1, torch_port=2))
    for _ in range(8):
        time.sleep(patience_seconds / 4)
        agent.stdin.write(frame("ping"))
    assert agent.poll() is None
    begun = time.monotonic()
    agent.wait(20)
    assert 0.5 * patience_seconds < time.monotonic() - begun < 5 * patience_seconds
    assert b'"rank": 0' in agent.stdout.read()  # which has run
    agent.stdin.close()
    agent.stdout.close()
    end = time.monotonic() + 10
    while left := marked_processes(mark):
        assert time.monotonic() < end, left


# Goal: whatever keeps a host from taking part is said at once, with its name, and nothing of the
# job has run anywhere. Method: names for which the stand-in plays a host with one thing wrong.
@pytest.mark.parametrize(
    ("host", "status", "message"),
    [
        ("unreachable", 255, r"cannot connect to host unreachable: ssh: .* Connection refused"),
        ("nopython", 127, r"host nopython cannot run .*python.*: .*/no/such/python"),
        ("nofarandole", 127, r"host nofarandole has no farandole for .*: .*No module named"),
        ("otherversion", 1, r"host otherversion has farandole 9\.8\.7, here it is \d"),
    ],
)
def test_host_that_cannot_take_part(
    run: Start, tmp_path: Path, host: str, status: int, message: str
) -> None:
    witness = tmp_path / "ran"
    begun = time.monotonic()
    job = run("-n", "2", "-H", f"alpha:1,{host}:1", "touch", witness)
    assert job.finish() == status
    assert re.search(message, job.stderr), job.stderr
    assert time.monotonic() - begun < 10
    assert not witness.exists()
    assert job.wait_until_gone(5) == []


def test_host_that_does_not_answer(run: Start) -> None:
    job = run("-n", "2", "-H", "alpha:1,silent:1", "--start-timeout", "1.5", "true")
    assert job.finish() == 255
    assert "host silent did not answer within 1.5 s" in job.stderr
    assert job.wait_until_gone(5) == []


def test_interrupt_while_hosts_are_contacted(run: Start) -> None:
    job = run("-n", "2", "-H", "alpha:1,silent:1", "--verbose", "true")
    assert job.process.stderr is not None
    while "host silent" not in job.process.stderr.readline():
        pass
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert job.wait_until_gone(5) == []


def test_what_a_login_shell_prints_is_skipped(run: Start) -> None:
    job = run("-n", "2", "-H", "talkative:1,beta:1", "echo", "hello")
    assert job.finish() == 0, job.stderr
    assert job.stdout == "hello\nhello\n"


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("no-such-command", 127, "host alpha: command not found: no-such-command"),
        ("no/such.py", 127, "host alpha: there is no file no/such.py"),
    ],
)
def test_missing_command(run: Start, command: str, status: int, message: str) -> None:
    job = run("-n", "2", "-H", "alpha:1,alpha2:1", command)
    assert job.finish() == status
    assert re.search(message.replace("alpha", "alpha2?"), job.stderr), job.stderr
    assert job.wait_until_gone(5) == []


def test_command_that_cannot_be_executed(run: Start, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no program")
    (tmp_path / "notes").chmod(0o755)
    job = run("-n", "2", "-H", "alpha:1,beta:1", tmp_path / "notes")
    assert job.finish() == 126
    assert re.search(r"host (alpha|beta): cannot start .*notes: .*Exec format", job.stderr)
    assert job.wait_until_gone(5) == []


# Method: the stand-in's hosts have this host's folders, so an agent is told of one by hand.
def test_missing_working_directory(tmp_path: Path) -> None:
    job = frame("job", directory=str(tmp_path / "gone"), local_sizes=[1], host=0)
    done = subprocess.run(
        [sys.executable, "-m", "farandole.cli", "agent"],
        input=job,
        capture_output=True,
        timeout=60,
        check=False,
    )
    said = [fields for fields, _ in Frames(HELLO_MARK).feed(done.stdout)]
    assert [fields["kind"] for fields in said] == ["hello", "refused"]
    assert said[1]["status"] == 126
    assert said[1]["message"] == (
        f"cannot enter the working directory {tmp_path}/gone: No such file or directory"
    )


def test_missing_ssh(start: Start) -> None:
    job = start("-n", "1", "-H", "alpha", "--ssh-command", "no-such-ssh -v", "true")
    assert job.finish() == 127
    assert "cannot reach host alpha: no-such-ssh: No such file or directory" in job.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "5", "-H", "a:2,b:2"], "5 ranks do not fit: the hosts have 4 slots together"),
        (["-n", "1", "-H", "a:two"], "the slots of a are 'two', allowed is a number from 1"),
        (["-n", "1", "-H", "a", "--hostfile", "x"], "--hosts or --hostfile, not both"),
        (["-n", "1", "--hostfile", "/no/such"], "cannot read the hostfile"),
        (["-n", "1", "--no-stall-check", "--stall-check-warning-time-seconds", "3"], "not both"),
    ],
)
def test_mistakes_are_named(start: Start, arguments: list[str], message: str) -> None:
    job = start(*arguments, "true", TERMINAL_WIDTH="300", COLUMNS="300")
    assert job.finish() == 2
    assert message in " ".join(job.stderr.split())


def test_hostfile_error_has_its_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# two\nalpha slots=2\nbeta slots=two\n")
    job = start("-n", "1", "--hostfile", tmp_path / "hosts", "true", COLUMNS="300")
    assert job.finish() == 2
    assert "hosts:3: the slots of beta are 'two'" in " ".join(job.stderr.split())


# Goal: hosts that are all this machine need no ssh, and keep their standard input.
def test_only_this_machine(start: Start) -> None:
    own = socket.gethostname()
    for hosts in ("localhost:2", "127.0.0.1:2", f"{own}:4"):
        job = start("-n", "2", "-H", hosts, "--ssh-command", "false", "cat")
        assert job.finish(stdin="hello") == 0, job.stderr
        assert job.stdout == "hello"


OPTIONS = [
    (["--network-interface", "eth7"], {"INTERFACE": "eth7"}),
    (["--start-timeout", "33"], {"START_TIMEOUT": "33.0"}),
    (["--timeline-filename", "t.json"], {"TIMELINE": "t.json"}),
    (["--fusion-threshold-mb", "32"], {"FUSION_THRESHOLD": "32MiB"}),
    (["--cycle-time-ms", "2.5"], {"CYCLE_TIME": "0.0025"}),
    (["--cache-capacity", "0"], {"CACHE_CAPACITY": "0"}),
    (["--no-stall-check"], {"STALL_WARNING": "0", "STALL_SHUTDOWN": "0"}),
    (["--stall-check-warning-time-seconds", "7"], {"STALL_WARNING": "7.0"}),
    (["--stall-check-shutdown-time-seconds", "8"], {"STALL_SHUTDOWN": "8.0"}),
    (["--autotune"], {"AUTOTUNE": "1"}),
    (["--autotune-log-file", "tuned.json"], {"AUTOTUNE_LOG": "tuned.json"}),
    (["--autotune-warmup-samples", "2"], {"AUTOTUNE_WARMUP_SAMPLES": "2"}),
    (["--autotune-steps-per-sample", "5"], {"AUTOTUNE_STEPS_PER_SAMPLE": "5"}),
    (["--autotune-bayes-opt-max-samples", "9"], {"AUTOTUNE_MAX_SAMPLES": "9"}),
    (["--log-level", "TRACE"], {"LOG": "debug"}),
    (["--timeline-filename", "DYNAMIC"], {}),
]


# Goal: every option sets its variable and no other's. Method: all of them alone, on this machine.
@pytest.mark.parametrize(("arguments", "settings"), OPTIONS, ids=lambda value: str(value)[:24])
def test_option_sets_its_variable(
    start: Start, write: Write, arguments: list[str], settings: dict[str, str]
) -> None:
    (row,) = environments(start("-n", "1", *arguments, write(PRINT_ENVIRONMENT)))
    known = {name for _, values in OPTIONS for name in values}
    assert {
        name: row[f"FARANDOLE_{name}"] for name in known if f"FARANDOLE_{name}" in row
    } == settings


HOROVOD = {
    "HOROVOD_FUSION_THRESHOLD": "1048576",
    "HOROVOD_CYCLE_TIME": "3.5",
    "HOROVOD_CACHE_CAPACITY": "99",
    "HOROVOD_TIMELINE": "/tmp/line.json",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "11",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "12",
}
TRANSLATED = {
    "FARANDOLE_FUSION_THRESHOLD": "1048576",
    "FARANDOLE_CYCLE_TIME": "0.0035",
    "FARANDOLE_CACHE_CAPACITY": "99",
    "FARANDOLE_TIMELINE": "/tmp/line.json",
    "FARANDOLE_STALL_WARNING": "11",
    "FARANDOLE_STALL_SHUTDOWN": "12",
}


# Goal: Horovod's variables count where ours are not set, on every host, and --verbose says so once.
def test_variables_of_horovod(run: Start, write: Write) -> None:
    job = run("-n", "2", "-H", "alpha:1,beta:1", "--verbose", write(PRINT_ENVIRONMENT), **HOROVOD)
    for row in environments(job):
        assert {name: row.get(name) for name in TRANSLATED} == TRANSLATED
    (line,) = [line for line in job.stderr.splitlines() if "HOROVOD" in line]
    assert all(f"{name} as FARANDOLE_" in line for name in HOROVOD)


def test_ours_come_before_variables_of_horovod(start: Start, write: Write) -> None:
    arguments = ("-n", "1", "--cycle-time-ms", "4", "--env", "FARANDOLE_TIMELINE=mine")
    (row,) = environments(
        job := start(
            *arguments,
            write(PRINT_ENVIRONMENT),
            **HOROVOD | {"FARANDOLE_CACHE_CAPACITY": "5", "HOROVOD_STALL_CHECK_DISABLE": "1"},
        )
    )
    assert row["FARANDOLE_CYCLE_TIME"] == "0.004"
    assert row["FARANDOLE_TIMELINE"] == "mine"
    assert row["FARANDOLE_CACHE_CAPACITY"] == "5"
    assert row["FARANDOLE_STALL_WARNING"] == "0"
    assert job.stderr == ""
    job = start("-n", "1", "true", HOROVOD_CYCLE_TIME="fast")
    assert job.finish() == 2
    assert "HOROVOD_CYCLE_TIME is 'fast'" in job.stderr


class Sshd:
    """A server at 127.0.0.2 and 127.0.0.3, which pass for two hosts, with keys of its own."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self._made_run_folder = False
        for name in ("host_key", "key", "strange_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True)
        (folder / "authorized").write_text((folder / "key.pub").read_text())
        with socket.create_server(("127.0.0.2", 0)) as server:
            self.port = server.getsockname()[1]
        (folder / "config").write_text(f"""
Port {self.port}
ListenAddress 127.0.0.2
ListenAddress 127.0.0.3
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
AcceptEnv FARANDOLE_TEST_MARK
Match LocalAddress 127.0.0.2
  SetEnv FARANDOLE_HOST_ID=two OF_HOST=127.0.0.2
Match LocalAddress 127.0.0.3
  SetEnv FARANDOLE_HOST_ID=three OF_HOST=127.0.0.3
""")
        if os.geteuid() == 0 and not Path("/run/sshd").exists():  # it asks for this, as root
            Path("/run/sshd").mkdir(mode=0o755)
            self._made_run_folder = True
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "config")], stderr=self._log
        )

    def wait(self) -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.3", self.port)):
                return
            time.sleep(0.05)
        pytest.fail(f"sshd did not start: {(self.folder / 'log').read_text()}")

    def arguments(self, key: str = "key") -> list[str]:
        known = f"-o UserKnownHostsFile={self.folder}/known -o GlobalKnownHostsFile=/dev/null"
        identities = "-o IdentitiesOnly=yes -o IdentityAgent=none"
        command = f"ssh -F /dev/null {known} {identities} -o SendEnv=FARANDOLE_TEST_MARK"
        key_file = str(self.folder / key)
        return ["--ssh-command", command, "--ssh-port", str(self.port), "-i", key_file]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()
        if self._made_run_folder:
            Path("/run/sshd").rmdir()


def why_no_sshd() -> str:
    """Why this machine cannot run a server of ours; empty if it can."""
    sbin = f"{os.environ['PATH']}:/usr/sbin"
    if shutil.which("sshd", path=sbin) is None or shutil.which("ssh") is None:
        return "sshd or ssh (Debian's openssh-server, openssh-client) is missing"
    return ""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if reason := why_no_sshd():
        pytest.skip(reason)
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    server = Sshd(tmp_path_factory.mktemp("sshd"), program)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


# Goal: all of it through ssh itself.
def test_ssh(start: Start, sshd: Sshd) -> None:
    job = start(*sshd.arguments(), *TWO_BY_TWO, PLACES)
    assert job.finish() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == places(("127.0.0.2", "127.0.0.3"), 2)
    job = start(*sshd.arguments(), *TWO_BY_TWO, "bash", "-c", "[ $RANK = 3 ] && exit 7; sleep 0.2")
    assert job.finish() == 7
    assert re.search(r"host 127.0.0.3: rank 3 \(pid \d+\) exited with status 7", job.stderr)
    assert job.wait_until_gone(5) == []


# Goal: neither end of ssh leaves ranks behind when it is killed.
@pytest.mark.parametrize("victim", ["launcher", "ssh"])
def test_killed_with_ssh(start: Start, sshd: Sshd, victim: str) -> None:
    job = start(
        *(*sshd.arguments(), *TWO_BY_TWO, "--grace", "0.2"),
        *("bash", "-c", "(trap '' TERM HUP; sleep 1000) & echo up; sleep 1000; :"),
    )
    assert [job.line() for _ in range(4)] == ["up"] * 4
    assert len(agents(job)) == 2
    if victim == "launcher":
        job.process.kill()
    else:
        ssh = [pid for pid in connections(job, "ssh") if "127.0.0.3" in command_lines(job)[pid]]
        os.kill(ssh[0], signal.SIGKILL)
        assert job.finish() == 255
        assert "host 127.0.0.3: the connection was lost (ssh was killed by SIGKILL)" in job.stderr
    assert job.wait_until_gone(10) == []


# Goal: what ssh says of a host that lets nobody in, or is not there, is passed on with its name.
def test_refused_by_ssh(start: Start, sshd: Sshd) -> None:
    job = start(*sshd.arguments("strange_key"), "-n", "1", "-H", "127.0.0.2", "true")
    assert job.finish() == 255
    assert re.search(r"cannot connect to host 127.0.0.2: .*Permission denied", job.stderr)
    job = start(*sshd.arguments(), "-n", "2", "-H", "127.0.0.2,127.0.0.9", "true")
    assert job.finish() == 255
    assert re.search(r"cannot connect to host 127.0.0.9: .*Connection refused", job.stderr)
    assert job.wait_until_gone(5) == []
