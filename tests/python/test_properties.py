# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: every algorithm, with whatever options, gives what NumPy gives, on any number of ranks in
any order; equal bits on all ranks; and with deterministic=True equal bits from all algorithms.

Method: Hypothesis draws jobs of up to 12 ranks, communicators, and calls with options of the
algorithms, blocks of different lengths and roots; ranks are threads over real engines. The same
examples every time, or with FARANDOLE_TEST_FULL=1 twenty times as many that are new each time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_threads import on_ranks

from farandole import Recv, Send, _native
from farandole.core.arrays import numpy_dtype
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

FULL = os.environ.get("FARANDOLE_TEST_FULL") == "1"
RANKS_MAX = 12
REDUCING = ("allreduce", "reduce", "reducescatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
DIVIDED = ("reducescatter", "allgather", "gather", "scatter", "alltoall")
# What has to take blocks of different lengths on any number of ranks.
TAKES_COUNTS = {
    "reducescatter": ("ring", "pairwise", "direct"),
    "allgather": ("ring", "direct"),
    "gather": ("direct",),
    "scatter": ("direct",),
    "alltoall": ("pairwise", "direct"),
}
UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "average": np.add,
    "premultiplied_sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


def examples(count: int) -> settings:
    return settings(
        max_examples=count * (20 if FULL else 1),
        deadline=None,
        derandomize=not FULL,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def allowed(dtype: str, op: str) -> bool:
    kind = "float" if "float" in dtype else "complex" if "complex" in dtype else "whole"
    if dtype.startswith("float8"):
        return False
    if op in ("sum", "product", "premultiplied_sum"):
        return True
    if op == "average":
        return dtype != "bool"
    return kind == "whole" or (kind == "float" and op in ("min", "max"))


PAIRS = [(d, op) for d in _native.DTYPES for op in _native.REDUCTIONS if allowed(d, op)]


@dataclass
class Call:
    """One collective of all ranks, what each puts in and what each should get."""

    collective: str
    spec: str | None
    dtype: str
    op: str
    lengths: list[list[int]]  # of the blocks: [1][1], [1][rank], or for alltoall [from][to]
    by_rank: bool
    root: int
    place: str
    later: bool
    deterministic: bool
    factor: float
    seed: int
    inputs: list[Array] = field(default_factory=list, repr=False)
    outputs: list[Array | None] = field(default_factory=list, repr=False)


def layer_sizes(draw: st.DrawFn, left: int) -> list[int]:
    """An ordered factorization, with ones."""
    found = []
    while left > 1 or not found or draw(st.integers(0, 9)) == 0:
        found.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= found[-1]
    return found


def option(draw: st.DrawFn, key: str, size: int) -> str:
    if key == "radix":
        return f"radix={draw(st.integers(2, 8))}"
    if key == "chunks":
        return f"chunks={draw(st.integers(1, 20))}"
    if key == "order":
        return "order=" + "/".join(map(str, draw(st.permutations(range(size)))))
    assert key == "layers", f"no strategy for option {key}"
    layers = []
    for layer in layer_sizes(draw, size):
        kinds = ["", "ring", "direct"] + (["halving"] if layer & (layer - 1) == 0 else [])
        layers.append(f"{layer}{draw(st.sampled_from(kinds))}")
    return "layers=" + "/".join(layers)


@st.composite
def specs(draw: st.DrawFn, collective: str, size: int) -> str | None:
    rows = [row for row in _native.algorithms() if row["collective"] == collective]
    # More often those that have more options; none is the planner's choice.
    weighted = [row for row in rows for _ in range(1 + 3 * len(row["options"].split()))]
    row = draw(st.sampled_from([None, *weighted]))
    if row is None:
        return None
    keys = [key for key in row["options"].split() if draw(st.integers(0, 3)) > 0]
    return row["name"] + (":" if keys else "") + ",".join(option(draw, k, size) for k in keys)


COUNTS = st.one_of(st.integers(0, 30), st.integers(0, 30), st.integers(0, 3000))


@st.composite
def calls(draw: st.DrawFn, size: int) -> Call:
    collective = draw(st.sampled_from([c for c in _native.COLLECTIVES if c != "barrier"]))
    dtype, op = draw(st.sampled_from(PAIRS))
    if collective not in REDUCING:
        dtype, op = draw(st.sampled_from(_native.DTYPES)), ""
    by_rank = collective in DIVIDED and draw(st.booleans())
    one = draw(COUNTS)
    ragged = st.lists(st.integers(0, 40), min_size=size, max_size=size)
    if collective == "alltoall":
        lengths = [draw(ragged) if by_rank else [one] * size for _ in range(size)]
    elif collective in DIVIDED:
        lengths = [draw(ragged) if by_rank else [one] * size]
    else:
        lengths = [[one]]
    return fill(
        Call(
            collective,
            draw(specs(collective, size)),
            dtype,
            op,
            lengths,
            by_rank,
            draw(st.integers(0, size - 1)) if collective in ROOTED else 0,
            draw(st.sampled_from(["new", "given", "in place"])),
            draw(st.booleans()),
            collective in REDUCING and draw(st.booleans()),
            draw(st.sampled_from([0.5, 2.0, 3.0])) if op == "premultiplied_sum" else 1.0,
            draw(st.integers(0, 999)),
        ),
        size,
    )


def values(call: Call, count: int, rank: int) -> Array:
    """Integers so small that any order of operands gives one exact result, unless only moved."""
    random = np.random.default_rng((call.seed, rank))
    dtype = numpy_dtype(call.dtype)
    if call.op == "" and call.dtype != "bool":
        return random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    if call.op == "product" and call.dtype != "bool":
        return random.choice([1, 2, 1 if dtype.kind == "u" else -1], count).astype(dtype)
    if call.dtype == "bool" or call.op.startswith("logical"):
        return (random.random(count) < 0.8).astype(dtype)
    return random.integers(0 if dtype.kind == "u" else -3, 5, count).astype(dtype)


def reduced(call: Call) -> Array:
    """By NumPy, in wider types where it has no narrower ones."""
    dtype = call.inputs[0].dtype
    stack = np.stack(call.inputs)
    if dtype.kind not in "biu":
        stack = stack.astype(np.complex128 if dtype.kind == "c" else np.float64)
    if call.op == "premultiplied_sum":
        scaled = np.stack(call.inputs).astype(complex if dtype.kind == "c" else float) * call.factor
        stack = np.trunc(scaled).astype(dtype) if dtype.kind in "biu" else scaled
    if dtype.kind == "b" or call.op.startswith("logical"):
        stack = stack != 0
        if call.op in ("sum", "premultiplied_sum", "max", "product", "min"):
            ufunc = np.logical_and if call.op in ("product", "min") else np.logical_or
            return np.asarray(ufunc.reduce(stack))
        return np.asarray(UFUNCS[call.op].reduce(stack)).astype(dtype)
    wide = stack.dtype if call.op != "average" or dtype.kind not in "iu" else np.int64
    total = UFUNCS[call.op].reduce(stack.astype(wide), dtype=wide)
    if call.op == "average" and dtype.kind in "iu":
        total = np.sign(total) * (np.abs(total) // len(stack))
    elif call.op == "average":
        part = {"complex128": np.float64, "float64": np.float64}.get(dtype.name, np.float32)
        parts = total.view(np.float64).astype(part) / part(len(stack))
        total = parts.view(dtype) if dtype.kind == "c" else parts
    return np.asarray(total).astype(dtype)


def fill(call: Call, size: int) -> Call:
    """Draws the inputs and computes the outputs."""
    lengths = call.lengths
    rows = lengths if call.collective == "alltoall" else lengths * size
    joins = call.collective in ("allgather", "gather")
    sent = lengths[0] if joins else [sum(row) for row in rows]
    call.inputs = [values(call, count, rank) for rank, count in enumerate(sent)]
    total = reduced(call) if call.collective in REDUCING else np.concatenate(call.inputs)
    at = [list(accumulate(row, initial=0)) for row in rows]
    everyone = range(size)
    match call.collective:
        case "allreduce" | "allgather":
            call.outputs = [total] * size
        case "reduce" | "gather":
            call.outputs = [total if rank == call.root else None for rank in everyone]
        case "broadcast":
            call.outputs = [call.inputs[call.root]] * size
        case "reducescatter":
            call.outputs = [total[at[0][r] : at[0][r + 1]] for r in everyone]
        case "scatter":
            root = call.inputs[call.root]
            call.outputs = [root[at[0][r] : at[0][r + 1]] for r in everyone]
        case _:
            call.outputs = [
                np.concatenate([call.inputs[s][at[s][r] : at[s][r + 1]] for s in everyone])
                for r in everyone
            ]
    return call


def buffers(call: Call, rank: int) -> tuple[Array | None, Array | None]:
    """The input, and where the result goes if that is said."""
    array, expected = call.inputs[rank].copy(), call.outputs[rank]
    at_root = rank == call.root
    if call.collective == "scatter" and not at_root:
        assert expected is not None
        return None, np.empty_like(expected)
    if call.place == "new" or expected is None:
        return array, None
    start = sum(call.lengths[0][:rank])
    if call.place == "given" or (call.collective == "alltoall" and call.by_rank):
        return array, np.empty_like(expected)
    if call.collective in ("reducescatter", "scatter"):
        return array, array[start : start + len(expected)]
    if call.collective in ("allgather", "gather"):
        out = np.empty_like(expected)
        own = out[start : start + len(array)]
        own[:] = array
        return own, out
    return array, array


def options(call: Call, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"algorithm": call.spec, "name": repr(call)[:500]}
    if call.collective in REDUCING:
        found |= {"op": call.op, "factor": call.factor, "deterministic": call.deterministic}
    if call.collective in ROOTED:
        found["root"] = call.root
    if not call.by_rank:
        return found
    if call.collective == "alltoall":
        received = [row[rank] for row in call.lengths]
        return found | {"send_counts": call.lengths[rank], "recv_counts": received}
    alone = call.collective in ROOTED and rank != call.root
    return found | {"counts": call.lengths[0][rank] if alone else call.lengths[0]}


def check(call: Call, rank: int, result: Array | None) -> None:
    expected = call.outputs[rank]
    assert (result is None) == (expected is None), call
    if result is None or expected is None:
        return
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape), call
    same = result.tobytes() == expected.tobytes()
    assert same or (call.op != "" and np.array_equal(result, expected)), (call, result, expected)


def perform(call: Call, comm: Communicator) -> Any:
    """The request of one that is waited for later."""
    array, out = buffers(call, comm.rank)
    method = getattr(comm, call.collective + ("_async" if call.later else ""))
    try:
        result = method(array, out, **options(call, comm.rank))
    except InvalidArgumentError as error:
        required = (None, *TAKES_COUNTS.get(call.collective, ()))
        if call.spec in required or "with counts per rank one of" not in str(error):
            raise
        return None
    if call.later:
        return result
    check(call, comm.rank, result)
    return None


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[int], list[Call]]:
    """An order of the ranks, and what they do in it."""
    order = draw(st.integers(1, RANKS_MAX).flatmap(lambda size: st.permutations(range(size))))
    return list(order), draw(st.lists(calls(len(order)), min_size=1, max_size=8))


@examples(500)
@given(jobs())
def test_results_are_those_of_numpy(job: tuple[list[int], list[Call]]) -> None:
    order, todo = job

    def body(world: Communicator) -> None:
        comm = world.group(order)
        assert comm is not None
        assert comm.rank == order.index(world.rank)
        waiting = [(call, perform(call, comm)) for call in todo]
        for call, request in reversed(waiting):
            if request is not None:
                check(call, comm.rank, request.wait())

    on_ranks(body, size=len(order))


@pytest.mark.parametrize("size", [1, 3])
def test_results_of_every_dtype_and_reduction(size: int) -> None:
    """What the drawn jobs need not contain."""
    todo = [
        fill(Call(name, None, *pair, [[count]], False, 0, "new", False, False, 2.0, count), size)
        for name in ("allreduce", "reduce")
        for pair in PAIRS
        for count in (4, 5)
    ]

    def body(comm: Communicator) -> None:
        for call in todo:
            perform(call, comm)

    on_ranks(body, size=size)


class StumbleError(Exception):
    """Of a rank, on purpose."""


@examples(60)
@given(jobs(), st.data())
def test_a_failing_rank_leaves_memory_whole(job: tuple[list[int], list[Call]], data: Any) -> None:
    """Its operations are under way, their requests and arrays gone with the frame that had them."""
    order, todo = job
    last = data.draw(st.integers(0, len(todo) - 1), label="calls before it fails")

    def later(call: Call, comm: Communicator, place: int) -> Any:
        if place == last and comm.rank == 0:
            raise StumbleError
        return perform(call, comm)

    def body(world: Communicator) -> None:
        comm = world.group(order)
        assert comm is not None
        requests = [later(call, comm, place) for place, call in enumerate(todo)]
        for call, request in zip(todo, requests, strict=True):
            if request is not None:
                check(call, comm.rank, request.wait())

    for call in todo:
        call.later = True
    with pytest.raises(StumbleError):
        on_ranks(body, size=len(order))


@st.composite
def links(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """Ranks, and messages: from, to, elements."""
    size = draw(st.integers(1, RANKS_MAX))
    rank = st.integers(0, size - 1)
    return size, draw(st.lists(st.tuples(rank, rank, COUNTS), max_size=40))


@examples(100)
@given(links(), st.randoms(use_true_random=False))
def test_messages_of_a_batch_match_in_order(
    job: tuple[int, list[tuple[int, int, int]]], shuffler: Any
) -> None:
    size, all_links = job
    data = [np.arange(n, dtype=np.int32) * 64 + i for i, (_, _, n) in enumerate(all_links)]
    seed = shuffler.randrange(1000)

    def body(comm: Communicator) -> None:
        sends = [Send(a, d) for a, (s, d, _) in zip(data, all_links, strict=True) if s == comm.rank]
        wanted = [a for a, (_, d, _) in zip(data, all_links, strict=True) if d == comm.rank]
        sources = [s for s, d, _ in all_links if d == comm.rank]
        receives = [Recv(np.empty_like(a), s) for a, s in zip(wanted, sources, strict=True)]
        # Sends between receives: only the order of each kind is kept.
        slots = np.random.default_rng((seed, comm.rank)).permutation(len(sends) + len(receives))
        queues: tuple[list[Any], list[Any]] = (sends[::-1], receives[::-1])
        comm.batch([queues[int(slot >= len(sends))].pop() for slot in slots])
        for receive, array in zip(receives, wanted, strict=True):
            np.testing.assert_array_equal(receive.out, array)

    on_ranks(body, size=size)


COLORS = st.lists(
    st.tuples(st.sampled_from([None, 0, 1, 7]), st.integers(-3, 3)), min_size=1, max_size=RANKS_MAX
)


@examples(60)
@given(COLORS)
def test_split_groups_by_color_and_orders_by_key(wishes: list[tuple[int | None, int]]) -> None:
    def body(world: Communicator) -> None:
        color, key = wishes[world.rank]
        comm = world.split(color, key)
        assert (comm is None) == (color is None)
        if comm is None:
            return
        members = [rank for rank, (other, _) in enumerate(wishes) if other == color]
        members.sort(key=lambda rank: wishes[rank][1])
        assert comm.world_ranks == members
        assert comm.rank == members.index(world.rank)
        assert comm.allgather(np.array(world.rank)).tolist() == members

    on_ranks(body, size=len(wishes))


def reals(dtype: str, count: int, rank: int, seed: int) -> Array:
    """Of very different magnitude, so that the order of operands shows."""
    random = np.random.default_rng((seed, rank))
    return (random.standard_normal(count) * 2.0 ** random.integers(-8, 8, count)).astype(
        numpy_dtype(dtype)
    )


def tried(draw: st.DrawFn, collective: str, size: int) -> list[str | None]:
    """Every algorithm bare, and some with options."""
    bare = [row["name"] for row in _native.algorithms() if row["collective"] == collective]
    return [None, *bare, *(draw(specs(collective, size)) for _ in range(3))]


@st.composite
def real_jobs(draw: st.DrawFn) -> tuple[Any, ...]:
    size = draw(st.integers(1, RANKS_MAX))
    count = draw(st.one_of(st.integers(1, 50), st.integers(51, 30_000)))
    cut = draw(st.tuples(st.integers(0, count), st.integers(0, count)))
    plans = {name: tried(draw, name, size) for name in REDUCING}
    return size, count, slice(min(cut), max(cut)), plans, draw(st.integers(0, 999))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@examples(30)
@given(job=real_jobs())
def test_deterministic_results_have_one_value(dtype: str, job: tuple[Any, ...]) -> None:
    size, count, part, plans, seed = job

    def body(comm: Communicator) -> None:
        own = reals(dtype, count, comm.rank, seed)
        for op in ("sum", "average"):
            exact = {"op": op, "deterministic": True}
            wanted = comm.allreduce(own, **exact)
            for spec in plans["allreduce"]:
                result = comm.allreduce(own, algorithm=spec, **exact)
                assert result.tobytes() == wanted.tobytes(), spec
                # An element does not depend on the size of the message or its place there.
                result = comm.allreduce(own[part], algorithm=spec, **exact)
                assert result.tobytes() == wanted[part].tobytes(), (spec, part)
            for root, spec in enumerate(plans["reduce"]):
                result = comm.reduce(own, root=root % size, algorithm=spec, **exact)
                assert result is None or result.tobytes() == wanted.tobytes(), spec
            even = count // size * size
            block = slice(comm.rank * (even // size), (comm.rank + 1) * (even // size))
            for spec in plans["reducescatter"]:
                result = comm.reducescatter(own[:even], algorithm=spec, **exact)
                assert result.tobytes() == wanted[:even][block].tobytes(), spec

    on_ranks(body, size=size)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128"])
@examples(30)
@given(job=real_jobs())
def test_all_ranks_get_the_same_bits(dtype: str, job: tuple[Any, ...]) -> None:
    size, count, _, plans, seed = job
    stack = np.stack([reals(dtype, count, rank, seed) for rank in range(size)])
    exact = stack.astype(complex).sum(0)
    # Every partial sum is rounded once: no more than size roundings of at most the sum of all.
    unit = float(np.finfo(dtype).eps)
    bound = size * unit * np.abs(stack.astype(complex)).sum(0) + 1e-7

    def body(comm: Communicator) -> None:
        for spec in plans["allreduce"]:
            result = comm.allreduce(stack[comm.rank], algorithm=spec)
            everybodys = comm.allgather(result.reshape(1, -1))
            assert {row.tobytes() for row in everybodys} == {result.tobytes()}, spec
            assert (np.abs(result.astype(complex) - exact) <= bound).all(), spec

    on_ranks(body, size=size)
