# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Timelines of ranks (docs/formats/timeline.md): read, and merged into one on one clock.

All times are integers, nanoseconds on rank 0's clock.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from farandole.errors import InvalidArgumentError

FORMAT, MERGED_FORMAT, VERSION = "farandole timeline", "farandole merged timeline", 1
_RANKS_NAMED_MAX = 8  # in a message
_BYTES_MAX = 1 << 30  # of a file; what json makes of it is ten times as large

_T = TypeVar("_T")


class Span(NamedTuple):
    begin_ns: int
    duration_ns: int
    thread: int
    tensor: str
    phase: str
    detail: str

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.duration_ns


class Sample(NamedTuple):
    """A counter's value from a moment on."""

    when_ns: int
    name: str
    value: float


class Mark(NamedTuple):
    when_ns: int
    name: str


@dataclass
class Trace:
    """What one rank recorded."""

    path: Path
    rank: int
    size: int
    host: str
    pid: int
    clock_offset_ns: int
    dropped: dict[str, int]  # events lost, by reason
    spans: list[Span] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


def load(path: Path) -> Trace:
    """Reads one rank's file, compressed if it ends in .gz.

    InvalidArgumentError, naming the file, if it is no such file, or damaged.
    """
    try:
        text = _read(path)
        document = json.loads(text)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"{path}: cannot be read: {reason}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON
        what = "a timeline, but cut off or damaged" if FORMAT.encode() in text[:100] else "not JSON"
        raise InvalidArgumentError(f"{path}: is {what}: {error}") from error
    header = document.get("otherData") if isinstance(document, dict) else None
    kind = header.get("format") if isinstance(header, dict) else None
    if kind == MERGED_FORMAT:
        raise InvalidArgumentError(f"{path}: is merged already; give the files of the ranks")
    if kind != FORMAT:
        raise InvalidArgumentError(f"{path}: is not a timeline that farandole wrote")
    try:
        return _parse(path, document)
    except ValueError as error:
        raise InvalidArgumentError(f"{path}: is a damaged timeline: {error}") from error


def _read(path: Path) -> bytes:
    """All of a file, without the compression."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        text = file.read(_BYTES_MAX + 1)
    if len(text) > _BYTES_MAX:
        raise InvalidArgumentError(f"{path}: has more than {_BYTES_MAX >> 30} GiB")
    return text


def load_all(paths: Sequence[Path], partial: bool = False) -> list[Trace]:
    """The files of all ranks of one job, in order of rank; with `partial`, some may be missing."""
    traces: dict[int, Trace] = {}
    for path in paths:
        trace = load(path)
        first = next(iter(traces.values()), trace)
        if trace.size != first.size:
            raise InvalidArgumentError(
                f"{path}: is of a job of {trace.size} ranks, {first.path} of one of {first.size}"
            )
        if trace.rank in traces:
            raise InvalidArgumentError(
                f"{path}: is of rank {trace.rank}, as {traces[trace.rank].path} is"
            )
        traces[trace.rank] = trace
    if not traces:
        raise InvalidArgumentError("no timelines were given")
    size = next(iter(traces.values())).size
    if len(traces) < size and not partial:
        missing = [rank for rank in range(size) if rank not in traces]
        raise InvalidArgumentError(
            f"no file is of {_ranks(missing)}; {paths[0]} is of a job of {size} ranks; "
            "--partial does without"
        )
    return [traces[rank] for rank in sorted(traces)]


def merge(traces: Sequence[Trace]) -> Iterator[str]:
    """The text of one Chrome trace of all ranks, line by line. Its time 0 is the earliest event;
    each rank is a process, in order; events are in order of time."""
    origin = min(times_of(traces), default=0)
    header = {
        "format": MERGED_FORMAT,
        "version": VERSION,
        "size": traces[0].size if traces else 0,
        "origin_ns": origin,
        "ranks": [
            {
                "rank": trace.rank,
                "host": trace.host,
                "pid": trace.pid,
                "clock_offset_ns": trace.clock_offset_ns,
                "dropped": trace.dropped,
            }
            for trace in traces
        ],
    }
    yield f'{{"otherData":{json.dumps(header)},\n"traceEvents":[\n'
    separator = ""
    for event in [*_metadata(traces), *_events(traces, origin)]:
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    yield "\n]}\n"


def write_merged(traces: Sequence[Trace], path: Path) -> None:
    """Compressed if `path` ends in .gz."""
    for trace in traces:
        if path.exists() and path.samefile(trace.path):
            raise InvalidArgumentError(f"{path}: is one of the files to merge")
    open_text = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "wt") as file:
            file.writelines(merge(traces))
    except OSError as error:
        raise InvalidArgumentError(f"{path}: cannot be written: {error.strerror}") from error


def _parse(path: Path, document: dict[str, Any]) -> Trace:
    header = document["otherData"]
    if header.get("version") != VERSION:
        raise InvalidArgumentError(
            f"{path}: has version {header.get('version')!r:.40}, this farandole reads {VERSION}"
        )
    dropped = _typed(document, "dropped", dict)
    trace = Trace(
        path=path,
        rank=_typed(header, "rank", int),
        size=_typed(header, "size", int),
        host=_typed(header, "host", str),
        pid=_typed(header, "pid", int),
        clock_offset_ns=_typed(header, "clock_offset_ns", int),
        dropped={reason: _typed(dropped, reason, int) for reason in ("queue_full", "file_full")},
    )
    if not 0 <= trace.rank < trace.size:
        raise ValueError(f"rank {trace.rank} of {trace.size}")
    tensors: dict[int, str] = {}  # by thread
    for event in _typed(document, "traceEvents", list):
        _parse_event(trace, tensors, event)
    return trace


def _parse_event(trace: Trace, tensors: dict[int, str], event: Any) -> None:
    kind, name = _typed(event, "ph", str), _typed(event, "name", str)
    if kind == "M":
        if name == "thread_name":
            tensors[_typed(event, "tid", int)] = _typed(_typed(event, "args", dict), "name", str)
        return
    when = _ns(event, "ts") + trace.clock_offset_ns
    if kind == "X":
        thread = _typed(event, "tid", int)
        if thread not in tensors:
            raise ValueError(f"thread {thread} has no name")
        detail = _typed(_typed(event, "args", dict), "detail", str) if "args" in event else ""
        span = Span(when, _ns(event, "dur"), thread, tensors[thread], name, detail)
        trace.spans.append(span)
    elif kind == "C":
        trace.samples.append(Sample(when, name, _number(_typed(event, "args", dict), "value")))
    elif kind == "i":
        trace.marks.append(Mark(when, name))
    else:
        raise ValueError(f"an event is of kind {kind!r:.40}")


def _typed(values: Any, name: str, kind: type[_T]) -> _T:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r:.40} in {values!r:.200}")
    return value


def _number(values: Any, name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.40} in {values!r:.200}")
    return value


def _ns(event: Any, name: str) -> int:
    return round(_number(event, name) * 1000)


def _ranks(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:_RANKS_NAMED_MAX]))
    more = len(ranks) - _RANKS_NAMED_MAX
    return f"rank{'s' * (len(ranks) > 1)} {named}" + (f" and {more} more" if more > 0 else "")


def times_of(traces: Sequence[Trace]) -> Iterator[int]:
    """When everything began, unordered."""
    for trace in traces:
        yield from (span.begin_ns for span in trace.spans)
        yield from (sample.when_ns for sample in trace.samples)
        yield from (mark.when_ns for mark in trace.marks)


def _process(rank: int) -> int:
    return rank + 1  # as in the files: viewers take process 0 for the idle one


def _metadata(traces: Sequence[Trace]) -> Iterator[dict[str, Any]]:
    for trace in traces:
        process = _process(trace.rank)
        for name, thread, args in [
            ("process_name", 1, {"name": f"rank {trace.rank} ({trace.host}, pid {trace.pid})"}),
            ("process_sort_index", 1, {"sort_index": trace.rank}),
            ("thread_name", 1, {"name": "marks"}),
            *(
                ("thread_name", thread, {"name": tensor})
                for thread, tensor in sorted({(span.thread, span.tensor) for span in trace.spans})
            ),
        ]:
            yield {"ph": "M", "name": name, "pid": process, "tid": thread, "args": args}


def _events(traces: Sequence[Trace], origin: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for trace in traces:
        process = _process(trace.rank)
        for span in trace.spans:
            event = {"ph": "X", "name": span.phase, "pid": process, "tid": span.thread}
            times = {"ts": (span.begin_ns - origin) / 1000, "dur": span.duration_ns / 1000}
            args = {"args": {"detail": span.detail}} if span.detail else {}
            events.append({**event, **times, **args})
        for sample in trace.samples:
            event = {"ph": "C", "name": sample.name, "pid": process, "tid": 1}
            value = {"args": {"value": sample.value}}
            events.append({**event, "ts": (sample.when_ns - origin) / 1000, **value})
        for mark in trace.marks:
            event = {"ph": "i", "s": "p", "name": mark.name, "pid": process, "tid": 1}
            events.append({**event, "ts": (mark.when_ns - origin) / 1000})
    events.sort(key=lambda event: (event["ts"], event["pid"]))
    return events
