# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole trace` puts the timelines of all ranks on one clock and sums them up rightly;
what is no such set of timelines is refused by name.

Method: three ranks with clocks apart, whose numbers are worked out by hand below; the text that
the C++ writer's own test expects of it; damaged files through the command's own entry point.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from farandole.cli import main
from farandole.cli.app import app
from farandole.errors import InvalidArgumentError
from farandole.trace.summary import negotiations, summarize
from farandole.trace.timeline import Mark, Sample, Span, load, load_all

ROOT = Path(__file__).resolve().parents[2]
OFFSETS_NS = (0, 500_000, -2_000_000)  # rank 1's clock is behind rank 0's, rank 2's before it
US = 1000

Timed = tuple[str, str, float, float]  # tensor, phase, begin, duration in us on rank 0's clock


def timeline(
    rank: int,
    spans: Sequence[Timed] = (),
    samples: Sequence[tuple[str, float, float]] = (),
    marks: Sequence[tuple[str, float]] = (),
    size: int = 3,
    dropped: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """The document that a rank with its own clock writes of these events."""
    behind = OFFSETS_NS[rank] / US
    tensors = sorted({span[0] for span in spans})
    place = {"pid": rank + 1, "tid": 1}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", **place, "args": {"name": f"rank {rank} (h, pid 7)"}},
        {"ph": "M", "name": "process_sort_index", "pid": rank + 1, "args": {"sort_index": rank}},
        {"ph": "M", "name": "thread_name", **place, "args": {"name": "marks"}},
    ]
    for thread, tensor in enumerate(tensors, 3):
        at = {"pid": rank + 1, "tid": thread}
        events.append({"ph": "M", "name": "thread_name", **at, "args": {"name": tensor}})
    for tensor, phase, begin, duration in spans:
        at = {"pid": rank + 1, "tid": 3 + tensors.index(tensor)}
        events.append({"ph": "X", "name": phase, **at, "ts": begin - behind, "dur": duration})
    for name, value, when in samples:
        event = {"ph": "C", "name": name, **place, "ts": when - behind}
        events.append({**event, "args": {"value": value}})
    for name, when in marks:
        events.append({"ph": "i", "s": "p", "name": name, **place, "ts": when - behind})
    header = {"format": "farandole timeline", "version": 1, "rank": rank, "size": size}
    header |= {"host": f"node{rank}", "pid": 7, "clock": "CLOCK_MONOTONIC"}
    header |= {"clock_offset_ns": OFFSETS_NS[rank]}
    lost = {"queue_full": dropped[0], "file_full": dropped[1]}
    return {"otherData": header, "traceEvents": events, "dropped": lost}


# When each rank begins to negotiate, in us on rank 0's clock, and when they have agreed.
NEGOTIATIONS: list[tuple[str, tuple[float, float, float], float]] = [
    ("a", (1000, 1040, 1100), 1150),  # rank 2 is last: rank 0 waits 100, rank 1 waits 60
    ("a", (2000, 2300, 2010), 2320),  # rank 1 is last: rank 0 waits 300, rank 2 waits 290
    ("b", (1000, 1000, 1000), 1010),  # nobody is last
]
SAMPLES = (
    [("cache hit rate", 0.0, 1150.0), ("cache hit rate", 1.0, 2320.0), ("fused bytes", 100, 2000)],
    [("cache hit rate", 0.5, 2000.0), ("fused bytes", 300, 2100)],
    [],
)


def job() -> list[dict[str, Any]]:
    documents = []
    for rank in range(3):
        spans: list[Timed] = []
        for tensor, begins, end in NEGOTIATIONS:
            spans.append((tensor, "negotiating", begins[rank], end - begins[rank]))
            if tensor == "a":
                spans.append((tensor, "collective", end, 100))
        dropped = (5, 60) if rank == 1 else (0, 0)
        documents.append(timeline(rank, spans, SAMPLES[rank], [("cycle", 1500)], dropped=dropped))
    return documents


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Of the three ranks, the last one first, one compressed."""
    paths = []
    for rank, document in reversed(list(enumerate(job()))):
        path = tmp_path / (f"r{rank}.json.gz" if rank == 1 else f"r{rank}.json")
        text = json.dumps(document).encode()
        path.write_bytes(gzip.compress(text) if rank == 1 else text)
        paths.append(path)
    return paths


def output_of(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["trace", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def written_by_cpp() -> str:
    """What the writer's unit test requires of the writer, in which ' stands for "."""
    source = (ROOT / "tests/unit/trace/timeline_test.cpp").read_text()
    found = re.search(r"std::string expected =\n(.*?);\n", source, re.S)
    assert found is not None
    text: str = ast.literal_eval(f"({found[1]})")
    return text.replace("'", '"')


# Goal: what the C++ writer writes is read. Method: each event of the text that its test expects.
def test_reads_what_the_writer_writes(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(written_by_cpp())
    trace = load(path)
    offset = -1500
    assert (trace.rank, trace.size, trace.host, trace.pid) == (2, 4, "here", 77)
    assert trace.clock_offset_ns == offset
    assert trace.dropped == {"queue_full": 0, "file_full": 0}
    assert trace.spans == [
        Span(1_000_001_000 + offset, 10_000, 4, "grad", "queued", ""),
        Span(1_000_011_005 + offset, 8_995, 4, "grad", "collective", "ring, 4 KiB"),
    ]
    assert trace.samples == [Sample(1_000_030_000 + offset, "cache hit rate", 0.75)]
    assert trace.marks == [Mark(1_000_000_000 + offset, "cycle")]


# Goal: one file of all ranks on one clock, compressed if its name says so.
# Method: every time is what it was on rank 0's clock, less the earliest.
@pytest.mark.parametrize("name", ["merged.json", "merged.json.gz"])
def test_merge(files: list[Path], tmp_path: Path, name: str) -> None:
    assert "3 of 3 ranks" in output_of("merge", *files, "-o", tmp_path / name)
    data = (tmp_path / name).read_bytes()
    merged = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert merged["otherData"]["origin_ns"] == 1000 * US
    assert [row["rank"] for row in merged["otherData"]["ranks"]] == [0, 1, 2]
    assert merged["otherData"]["ranks"][1]["dropped"] == {"queue_full": 5, "file_full": 60}
    events = merged["traceEvents"]
    names = {
        event["pid"]: event["args"]["name"] for event in events if "process_n" in event["name"]
    }
    assert names == {rank + 1: f"rank {rank} (node{rank}, pid 7)" for rank in range(3)}
    assert sum(event["name"] == "process_name" for event in events) == 3
    order = [event["args"]["sort_index"] for event in events if "sort_index" in event["name"]]
    assert order == [0, 1, 2]
    timed = [event for event in events if event["ph"] != "M"]
    assert all(one["ts"] <= other["ts"] for one, other in pairwise(timed))
    begins = {
        (event["pid"] - 1, event["ts"] + 1000) for event in timed if event["name"] == "negotiating"
    }
    assert begins == {(rank, at[rank]) for _, at, _ in NEGOTIATIONS for rank in range(3)}
    assert [event["ts"] for event in timed if event["ph"] == "i"] == [500, 500, 500]
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert all(threads[event["pid"], event["tid"]] in "ab" for event in timed if "dur" in event)
    assert sum(event["ph"] == "C" for event in timed) == 5


# Goal: nanoseconds survive. Method: the writer's text, whose times are not whole microseconds.
def test_merge_keeps_nanoseconds_and_details(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(written_by_cpp())
    output_of("merge", tmp_path / "t.json", "-o", tmp_path / "m.json", "--partial")
    events = json.loads((tmp_path / "m.json").read_text())["traceEvents"]
    span = next(event for event in events if event["name"] == "collective")
    assert (span["ts"], span["dur"], span["args"]) == (11.005, 8.995, {"detail": "ring, 4 KiB"})


# Goal: the numbers of the summary. Method: worked out by hand from NEGOTIATIONS and SAMPLES.
def test_summary_numbers(files: list[Path], tmp_path: Path) -> None:
    output_of("summary", *files, "--json", tmp_path / "s.json")
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["ranks"], summary["size"], summary["negotiations"]) == ([0, 1, 2], 3, 3)
    assert summary["duration_ns"] == (2320 + 100 - 1000) * US
    # Negotiating, in order: 10 10 10 20 50 110 150 310 320. Collectives: six of 100.
    assert summary["phases"] == [
        {
            "phase": "negotiating",
            "count": 9,
            "total_ns": 990 * US,
            "share": pytest.approx(990 / 1590),
            "p50_ns": 50 * US,
            "p99_ns": 320 * US,
        },
        {
            "phase": "collective",
            "count": 6,
            "total_ns": 600 * US,
            "share": pytest.approx(600 / 1590),
            "p50_ns": 100 * US,
            "p99_ns": 100 * US,
        },
    ]
    arrivals = [tuple(row.values()) for row in summary["arrivals"]]
    assert arrivals == [
        (1, "node1", 1, 590 * US, 300 * US),
        (2, "node2", 1, 160 * US, 100 * US),
        (0, "node0", 0, 0, 0),
    ]
    tensors = [tuple(row.values()) for row in summary["tensors"]]
    assert tensors == [("a", 6, 960 * US, 320 * US), ("b", 3, 30 * US, 10 * US)]
    counters = [tuple(row.values()) for row in summary["counters"]]
    assert counters == [("cache hit rate", 3, 0.5, 0, 1), ("fused bytes", 2, 200, 100, 300)]
    assert summary["dropped"]["1"] == {"queue_full": 5, "file_full": 60}


# Goal: the tables say the same. Method: the cells that matter, as a reader sees them.
def test_summary_tables(files: list[Path]) -> None:
    text = output_of("summary", *files)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "3 of 3 ranks, 1.420 ms, 3 negotiations" in lines
    assert "negotiating 9 0.990 62.3% 0.050 0.320" in lines
    assert "1 node1 1 33.3% 0.590 0.300" in lines
    assert "a 6 0.960 0.320" in lines
    assert "cache hit rate 3 0.5 0 1" in lines
    assert "rank 1: 5 as the queue was full, 60 as the file was" in lines


# Goal: a round in which ranks are missing does not shift the later ones.
# Method: rank 1 lost its second of four rounds, and of the last ones each rank lost another.
def test_negotiations_with_lost_events(tmp_path: Path) -> None:
    begins = {0: (0, 100, 200, 300), 1: (5, 205, 405)}
    for rank, times in begins.items():
        spans: list[Timed] = [("x", "negotiating", at, 20) for at in times]
        (tmp_path / f"{rank}").write_text(json.dumps(timeline(rank, spans, size=2)))
    traces = load_all([tmp_path / "0", tmp_path / "1"])
    assert list(negotiations(traces)) == [{0: 0, 1: 5 * US}, {0: 200 * US, 1: 205 * US}]


# Goal: only the ten slowest tensors are listed. Method: twelve, and one that did not wait.
def test_slowest_tensors(tmp_path: Path) -> None:
    spans: list[Timed] = [(f"t{i}", "queued", 0, i) for i in range(13)]
    (tmp_path / "0").write_text(json.dumps(timeline(0, spans, size=1)))
    summary = summarize(load_all([tmp_path / "0"]))
    assert [row.tensor for row in summary.tensors] == [f"t{i}" for i in range(12, 2, -1)]


# Goal: a timeline without events is one. Method: merge and summarize it.
def test_no_events(tmp_path: Path) -> None:
    (tmp_path / "0").write_text(json.dumps(timeline(0, size=1)))
    assert "1 of 1 ranks, 0.000 ms, 0 negotiations" in output_of("summary", tmp_path / "0")
    output_of("merge", tmp_path / "0", "-o", tmp_path / "m")
    merged = json.loads((tmp_path / "m").read_text())
    assert {event["ph"] for event in merged["traceEvents"]} == {"M"}


# Goal: names cannot play with the terminal. Method: escapes and a lone surrogate in a name.
def test_names_are_made_printable(tmp_path: Path) -> None:
    spans: list[Timed] = [("\x1b[2Jevil\n\ud800[red]", "queued", 0, 5)]
    (tmp_path / "0").write_text(json.dumps(timeline(0, spans, size=1)))
    text = output_of("summary", tmp_path / "0")
    assert "\ufffd[2Jevil\ufffd\ufffd[red]" in text
    output_of("merge", tmp_path / "0", "-o", tmp_path / "m.json")
    events = json.loads((tmp_path / "m.json").read_text())["traceEvents"]
    assert spans[0][0] in {event.get("args", {}).get("name") for event in events}


def refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> str:
    """What the command prints on standard error when it exits with 2."""
    monkeypatch.setattr(sys, "argv", ["farandole", "trace", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("farandole: ")
    assert text.count("\n") == 1
    return text


def damaged(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = job()[0]
    change(document)
    return json.dumps(document).encode()


WHOLE = json.dumps(job()[0]).encode()
BAD = {
    "empty": (b"", "is not JSON"),
    "text": (b"rank 0 started\n", "is not JSON"),
    "binary": (b"\xff\xfe\x00\x80", "is not JSON"),
    "nesting": (b"[" * 100_000, "is not JSON"),
    "cut": (WHOLE[:-60], "cut off or damaged"),
    "number": (b"7", "not a timeline that farandole wrote"),
    "list": (b'[{"ph":"X","ts":1,"dur":1,"name":"x"}]', "not a timeline that farandole wrote"),
    "other": (b'{"schemaVersion":1,"traceEvents":[]}', "not a timeline that farandole wrote"),
    "header": (b'{"otherData":7,"traceEvents":[]}', "not a timeline that farandole wrote"),
    "merged": (b'{"otherData":{"format":"farandole merged timeline"}}', "is merged already"),
    "version": (damaged(lambda d: d["otherData"].update(version=2)), "has version 2"),
    "rank": (damaged(lambda d: d["otherData"].update(rank=3)), "damaged timeline: rank 3 of 3"),
    "rank_type": (damaged(lambda d: d["otherData"].update(rank="0")), "rank is '0'"),
    "no_host": (damaged(lambda d: d["otherData"].pop("host")), "host is None"),
    "no_dropped": (damaged(lambda d: d.pop("dropped")), "dropped is None"),
    "no_events": (damaged(lambda d: d.pop("traceEvents")), "traceEvents is None"),
    "event": (damaged(lambda d: d["traceEvents"].append(7)), "in 7"),
    "kind": (damaged(lambda d: d["traceEvents"][-1].update(ph="B")), "of kind 'B'"),
    "time": (damaged(lambda d: d["traceEvents"][-1].pop("ts")), "ts is None"),
    "nan": (damaged(lambda d: d["traceEvents"][-1].update(ts=float("nan"))), "ts is nan"),
    "thread": (damaged(lambda d: d["traceEvents"][5].update(tid=99)), "thread 99 has no name"),
    "args": (damaged(lambda d: d["traceEvents"][5].update(args=[])), "args is []"),
}


# Goal: a file that is no timeline is refused by name, whatever is in it. Method: one of each kind.
@pytest.mark.parametrize("kind", BAD)
def test_bad_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents, reason = BAD[kind]
    path = tmp_path / "bad.json"
    path.write_bytes(contents)
    text = refusal(monkeypatch, capsys, "summary", path)
    assert text.startswith(f"farandole: {path}: ")
    assert reason in text


# Goal: the same of files that cannot be read. Method: none there, a folder, bad compression.
@pytest.mark.parametrize("name", ["absent.json", "folder", "plain.gz", "cut.gz", "torn.gz"])
def test_unreadable_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compressed = gzip.compress(WHOLE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain.gz").write_bytes(WHOLE)
    (tmp_path / "cut.gz").write_bytes(compressed[:-20])
    (tmp_path / "torn.gz").write_bytes(compressed[:20] + b"\xff" * 20 + compressed[40:])
    text = refusal(monkeypatch, capsys, "summary", tmp_path / name)
    assert text.startswith(f"farandole: {tmp_path / name}: cannot be read: ")


# Goal: a set that is not of one job is refused. Method: a rank twice, a rank less, another size.
def test_ranks_are_checked(
    files: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    again, other = tmp_path / "again.json", tmp_path / "other.json"
    again.write_bytes(WHOLE)
    other.write_text(json.dumps(timeline(1, size=2)))
    text = refusal(monkeypatch, capsys, "summary", *files, again)
    assert f"{again}: is of rank 0, as {files[2]} is" in text
    text = refusal(monkeypatch, capsys, "merge", *files[:2], "-o", tmp_path / "m.json")
    assert f"no file is of rank 0; {files[0]} is of a job of 3 ranks; --partial" in text
    text = refusal(monkeypatch, capsys, "summary", files[0], other)
    assert f"{other}: is of a job of 2 ranks, {files[0]} of one of 3" in text
    assert "2 of 3 ranks" in output_of("summary", *files[:2], "--partial")


def test_many_missing_ranks_are_not_all_named(tmp_path: Path) -> None:
    (tmp_path / "0").write_text(json.dumps(timeline(0, size=1000)))
    with pytest.raises(InvalidArgumentError, match=r"ranks 1, 2, .*, 8 and 991 more; "):
        load_all([tmp_path / "0"])


# Goal: no file that was given is overwritten, and what cannot be written is an error.
# Method: merge into an input; write into a folder that is not there.
def test_output_is_checked(
    files: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = files[0].read_bytes()
    text = refusal(monkeypatch, capsys, "merge", *files, "-o", files[0])
    assert f"{files[0]}: is one of the files to merge" in text
    assert files[0].read_bytes() == before
    absent = tmp_path / "absent" / "out.json"
    for arguments in (["merge", *files, "-o", absent], ["summary", *files, "--json", absent]):
        monkeypatch.setattr(sys, "argv", ["farandole", "trace", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        assert f"cannot write {absent}: No such file or directory" in capsys.readouterr().err
