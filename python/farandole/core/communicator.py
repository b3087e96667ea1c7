# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks, and what they do together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from farandole import _native
from farandole.core import calls
from farandole.core.arrays import integer, positive_seconds
from farandole.core.calls import REDUCTIONS, Call, ReduceOp, said
from farandole.core.devices import Place, stream_handle
from farandole.core.messages import Recv, Send, natives
from farandole.core.requests import Request
from farandole.errors import InvalidArgumentError

Scalar = TypeVar("Scalar", bound=np.generic)
Out = TypeVar("Out")


def _collective(name: str) -> _native.Collective:
    members = _native.Collective.__members__
    if not isinstance(name, str) or name not in members:
        raise InvalidArgumentError(
            f"argument 'collective' is {name!r}, allowed are {', '.join(members)}"
        )
    return members[name]


def _size(nbytes: int) -> int:
    return integer("nbytes", nbytes, "0 or more, less than 2^63", 0, 2**63 - 1)


class Communicator:
    """An ordered group of ranks.

    Every rank calls the same collectives in the same order, and none ends before every rank has
    called it. Arrays are NumPy arrays, or anything
    contiguous on the CPU with DLPack or the buffer protocol; `out=None` makes a new NumPy array,
    `out=array` works in place where shapes allow it. Arrays of a GPU are torch's, or anything with
    __cuda_array_interface__; a call on them returns at once and is ordered on a stream, see on(),
    and `out=None` makes a new one. The methods ending in _async return a Request
    at once and own the arrays until its wait() returned. All waits release the GIL. Any thread may
    call; the order of two threads' calls, equal on all ranks, is theirs to see to.

    Every collective takes `algorithm`, by name and with options if it has any, as in
    "hierarchical:layers=4/2", and `name`, for error messages. `deterministic=True` reduces in one
    fixed order of operands, whatever the algorithm. With `counts`, rows of the first axis per rank,
    chunks may have different lengths.

    Raises InvalidArgumentError before anything moves, MismatchError on all ranks if they call
    unlike things, within a second of the last call (what they call next works),
    RankFailed if one is gone, TimedOutError after FARANDOLE_OPERATION_TIMEOUT. A rank that is gone
    breaks the communicators that contain it, and only those.
    """

    def __init__(self, native: _native.Communicator, stream: int | None = None) -> None:
        self.native = native
        self._stream = stream  # of calls on arrays of a GPU; None: their libraries' current ones
        self.rank = native.rank
        self.size = native.size
        self._group = calls.Group(self.rank, self.size)
        self._node: Communicator | None = None
        self._across: Communicator | None = None

    def on(self, stream: Any) -> Communicator:
        """This communicator, whose calls on arrays of a GPU are ordered on `stream`: CUDA's handle,
        an object with __cuda_stream__(), or a stream of torch, CuPy or Numba. Without on() they are
        ordered on the stream that the arrays' library uses at the time of the call."""
        return Communicator(self.native, stream_handle(stream))

    def algorithm(self, collective: str, nbytes: int) -> str:
        """What calls take that name no algorithm, with `nbytes` on the larger side of a rank: what
        the planner predicts to be fastest, a tuning file says, or set_algorithm() has set."""
        return self.native.algorithm(_collective(collective), _size(nbytes))

    def set_algorithm(self, collective: str, nbytes: int, algorithm: str | None) -> None:
        """Has calls of about `nbytes` (two classes of sizes per power of two) take `algorithm`;
        None: what they took before. Every rank must do the same between the same two calls."""
        self.native.set_algorithm(_collective(collective), _size(nbytes), algorithm or "")

    @overload
    def allreduce(
        self,
        array: Scalar,
        out: None = None,
        op: ReduceOp = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Scalar: ...
    @overload
    def allreduce(
        self,
        array: Any,
        out: None = None,
        op: ReduceOp = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> NDArray[Any]: ...
    @overload
    def allreduce(
        self,
        array: Any,
        out: Out,
        op: ReduceOp = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Out: ...
    def allreduce(
        self,
        array: Any,
        out: Any = None,
        op: ReduceOp = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Any:
        """Element-wise reduction over all ranks, [...] to [...]; every rank gets it. A NumPy scalar
        comes back as one. `op` is one of sum, product, min, max, average, logical_and, logical_or,
        logical_xor, bitwise_and, bitwise_or, bitwise_xor, premultiplied_sum (every input times
        `factor`, then sum)."""
        if type(array) is np.ndarray:  # saves 1 us of 3
            target = np.empty(array.shape, array.dtype) if out is None else out
            options = said(algorithm, name, factor, deterministic)
            try:
                reduction = REDUCTIONS[op]
            except (KeyError, TypeError):
                reduction = calls.reduction(op)  # raises
            if type(target) is np.ndarray and self.native.allreduce_plain(
                array, target, reduction, options
            ):
                return target
        return self._run(
            calls.allreduce(array, out, op, said(algorithm, name, factor, deterministic))
        )

    def allreduce_async(
        self,
        array: Any,
        out: Any = None,
        op: ReduceOp = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Request:
        """allreduce() in the background."""
        return self._start(
            calls.allreduce(array, out, op, said(algorithm, name, factor, deterministic))
        )

    @overload
    def reduce(
        self,
        array: Any,
        out: None = None,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> NDArray[Any] | None: ...
    @overload
    def reduce(
        self,
        array: Any,
        out: Out,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Out | None: ...
    def reduce(
        self,
        array: Any,
        out: Any = None,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Any:
        """allreduce() of which only the root gets the result; the others get None. An `out` that
        is given away from the root is overwritten with partial results."""
        return self._run(
            calls.reduce(
                self._group, array, out, op, root, said(algorithm, name, factor, deterministic)
            )
        )

    def reduce_async(
        self,
        array: Any,
        out: Any = None,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Request:
        """reduce() in the background."""
        return self._start(
            calls.reduce(
                self._group, array, out, op, root, said(algorithm, name, factor, deterministic)
            )
        )

    @overload
    def broadcast(
        self,
        array: Scalar,
        out: None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Scalar: ...
    @overload
    def broadcast(
        self,
        array: Any,
        out: None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def broadcast(
        self,
        array: Any,
        out: Out,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Out: ...
    def broadcast(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """The root's array on every rank. Other ranks' `array` gives shape and dtype only."""
        return self._run(calls.broadcast(self._group, array, out, root, said(algorithm, name)))

    def broadcast_async(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """broadcast() in the background."""
        return self._start(calls.broadcast(self._group, array, out, root, said(algorithm, name)))

    @overload
    def reducescatter(
        self,
        array: Any,
        out: None = None,
        op: ReduceOp = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> NDArray[Any]: ...
    @overload
    def reducescatter(
        self,
        array: Any,
        out: Out,
        op: ReduceOp = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Out: ...
    def reducescatter(
        self,
        array: Any,
        out: Any = None,
        op: ReduceOp = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Any:
        """Reduction of which rank r gets the r-th of `size` equal blocks of rows: [n, ...] to
        [n / size, ...]. With `counts`, the same on all ranks, block r has counts[r] rows."""
        return self._run(
            calls.reducescatter(
                self._group, array, out, op, counts, said(algorithm, name, factor, deterministic)
            )
        )

    def reducescatter_async(
        self,
        array: Any,
        out: Any = None,
        op: ReduceOp = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> Request:
        """reducescatter() in the background."""
        return self._start(
            calls.reducescatter(
                self._group, array, out, op, counts, said(algorithm, name, factor, deterministic)
            )
        )

    @overload
    def allgather(
        self,
        array: Any,
        out: None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def allgather(
        self,
        array: Any,
        out: Out,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Out: ...
    def allgather(
        self,
        array: Any,
        out: Any = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """The ranks' arrays one after the other along the first axis: [n, ...] of every rank to
        [size * n, ...]; a scalar array to [size]. All shapes must be equal, but for the number of
        rows if `counts`, the same on all ranks, says what it is on each."""
        return self._run(calls.allgather(self._group, array, out, counts, said(algorithm, name)))

    def allgather_async(
        self,
        array: Any,
        out: Any = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """allgather() in the background."""
        return self._start(calls.allgather(self._group, array, out, counts, said(algorithm, name)))

    @overload
    def gather(
        self,
        array: Any,
        out: None = None,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> NDArray[Any] | None: ...
    @overload
    def gather(
        self,
        array: Any,
        out: Out,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Out | None: ...
    def gather(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """allgather() of which only the root gets the result; the others get None. If one rank
        gives `counts`, all do; away from the root its own number of rows is enough."""
        return self._run(calls.gather(self._group, array, out, root, counts, said(algorithm, name)))

    def gather_async(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """gather() in the background."""
        return self._start(
            calls.gather(self._group, array, out, root, counts, said(algorithm, name))
        )

    @overload
    def scatter(
        self,
        array: Any,
        out: None = None,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def scatter(
        self,
        array: Any,
        out: Out,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Out: ...
    def scatter(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """Rank r gets the r-th of `size` equal blocks of rows of the root's array: [n, ...] to
        [n / size, ...]. Other ranks' `array` gives shape and dtype only, and may be None if `out`
        is given. If one rank gives `counts`, all do: rows of block r; away from the root its own
        number of rows is enough."""
        return self._run(
            calls.scatter(self._group, array, out, root, counts, said(algorithm, name))
        )

    def scatter_async(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        counts: Sequence[int] | int | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """scatter() in the background."""
        return self._start(
            calls.scatter(self._group, array, out, root, counts, said(algorithm, name))
        )

    @overload
    def alltoall(
        self,
        array: Any,
        out: None = None,
        *,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def alltoall(
        self,
        array: Any,
        out: Out,
        *,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Out: ...
    def alltoall(
        self,
        array: Any,
        out: Any = None,
        *,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """Block d of every rank's array goes to rank d, where it becomes block s, s being the
        rank that it came from; `size` equal blocks of rows. With both counts, send_counts[d] rows
        go to rank d and recv_counts[s] rows come from rank s."""
        return self._run(
            calls.alltoall(self._group, array, out, send_counts, recv_counts, said(algorithm, name))
        )

    def alltoall_async(
        self,
        array: Any,
        out: Any = None,
        *,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """alltoall() in the background."""
        return self._start(
            calls.alltoall(self._group, array, out, send_counts, recv_counts, said(algorithm, name))
        )

    def barrier(self, *, name: str | None = None) -> None:
        """Returns once every rank has called it."""
        self._run(calls.barrier(name))

    def barrier_async(self, *, name: str | None = None) -> Request:
        """barrier() in the background."""
        return self._start(calls.barrier(name))

    # Messages between two ranks. They match in program order per pair and direction, whatever
    # collectives come between them; there are no tags.

    def send(self, array: Any, dest: int, *, name: str | None = None) -> None:
        """`array` to rank `dest`, which receives it. Returns once `array` may be changed."""
        self.batch([Send(array, dest)], name=name)

    def send_async(self, array: Any, dest: int, *, name: str | None = None) -> Request:
        """send() in the background."""
        return self.batch_async([Send(array, dest)], name=name)

    def recv(self, out: Out, source: int, *, name: str | None = None) -> Out:
        """The next message of rank `source` into `out`, which is returned. A message of another
        length or dtype raises MismatchError here and is dropped."""
        self.batch([Recv(out, source)], name=name)
        return out

    def recv_async(self, out: Any, source: int, *, name: str | None = None) -> Request:
        """recv() in the background."""
        return self._exchange_async([Recv(out, source)], name, out)

    def sendrecv(
        self, array: Any, dest: int, out: Out, source: int, *, name: str | None = None
    ) -> Out:
        """send() and recv() at once; returns `out`."""
        self.batch([Send(array, dest), Recv(out, source)], name=name)
        return out

    def sendrecv_async(
        self, array: Any, dest: int, out: Any, source: int, *, name: str | None = None
    ) -> Request:
        """sendrecv() in the background."""
        return self._exchange_async([Send(array, dest), Recv(out, source)], name, out)

    def batch(self, messages: Iterable[Send | Recv], *, name: str | None = None) -> list[Any]:
        """All these messages at once; returns what was received, in the order of the Recv. A
        message to this rank itself needs its counterpart in the same batch. No message may be
        received into memory that another message of the batch uses."""
        rows, _, received, place = natives(messages, self._group)
        options = said(name=name)
        if place is None:
            self.native.run_messages(rows, options)
        else:
            self.native.run_messages_on_stream(rows, options.on(self._stream_of(place)))
        return received

    def batch_async(self, messages: Iterable[Send | Recv], *, name: str | None = None) -> Request:
        """batch() in the background."""
        return self._exchange_async(messages, name)

    # Groups of ranks of this one. All of them are made by all ranks of this communicator together.

    @property
    def world_ranks(self) -> list[int]:
        """The members' ranks in the world, by rank here."""
        return self.native.world_ranks

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Collective: the ranks that give one color become a communicator, ordered by key and,
        where keys are equal, by rank here. A rank that gives None gets None."""
        limit = 2**63
        if color is not None:
            color = integer("color", color, "None or a signed 64-bit integer", -limit, limit - 1)
        key = integer("key", key, "a signed 64-bit integer", -limit, limit - 1)
        return _wrapped(self.native.split(color, key))

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """Collective: the communicator of these ranks of this one, in this order; None on ranks
        that are not in the list. Every member gives the same list, others may give any that they
        are not in. Raises MismatchError if members give different lists."""
        last = self.size - 1
        allowed = f"each rank from 0 to {last} once at most"
        return _wrapped(self.native.group([integer("ranks", r, allowed, 0, last) for r in ranks]))

    def create_group(
        self, ranks: Sequence[int], tag: int = 0, timeout: float | None = None
    ) -> Communicator:
        """The communicator of these ranks of this one, in this order. Only they call it, each with
        the same list and tag; what the other ranks do, or whether they live, does not matter. Calls
        with different tags may run at the same time. Raises TimedOutError naming the members that
        did not come within `timeout` seconds (None: FARANDOLE_START_TIMEOUT), and RankFailed naming
        one that is gone."""
        last = self.size - 1
        allowed = f"each rank from 0 to {last} once at most"
        members = [integer("ranks", rank, allowed, 0, last) for rank in ranks]
        tag = integer("tag", tag, "a signed 32-bit integer", -(2**31), 2**31 - 1)
        if timeout is not None:
            timeout = positive_seconds("timeout", timeout)
        return Communicator(self.native.create_group(members, tag, timeout))

    @property
    def node(self) -> Communicator:
        """The ranks on this rank's host. Collective when it is first asked for."""
        if self._node is None:
            self._node = Communicator(self.native.node())
        return self._node

    @property
    def across(self) -> Communicator:
        """The ranks that have this rank's position on their hosts, one per host where all hosts
        have as many. Collective when it is first asked for."""
        if self._across is None:
            self._across = Communicator(self.native.across())
        return self._across

    def abort(self, reason: str) -> None:
        """Ends this communicator on all its members. What is in flight on it, and every later call
        there, raises one AbortedError that names this rank and the reason. Other communicators go
        on. Does not wait for the other members; a second call changes nothing."""
        if not isinstance(reason, str):
            raise InvalidArgumentError(f"argument 'reason' is {reason!r}, allowed is text.")
        self.native.abort(reason)

    def free(self) -> None:
        """Ends the use of this communicator on this rank, without waiting for the others. What is
        in flight goes on. Leaving a `with` block and dropping the object do the same. Ranks that
        still call a collective there get a MismatchError. The world cannot be freed."""
        self.native.free()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def _run(self, call: Call) -> Any:
        if call.place is None:
            self.native.run(call.arguments, call.options)
        else:
            options = call.options.on(self._stream_of(call.place))
            self.native.run_on_stream(call.arguments, options)
        return call.result[()] if call.scalar else call.result

    def _start(self, call: Call) -> Request:
        options = call.options
        if call.place is not None:
            options = options.on(self._stream_of(call.place))
        native = self.native.start(call.arguments, options)
        return Request(native, call.kept, call.result, call.scalar, call.place)

    def _stream_of(self, place: Place) -> int:
        """On which a call is ordered. It comes after what made the array."""
        stream = place.current() if self._stream is None else self._stream
        if place.producer is not None and place.producer != stream:
            _native.order_streams(place.pointer, place.producer, stream)
        return stream

    def _exchange_async(
        self, messages: Iterable[Send | Recv], name: str | None, result: Any = None
    ) -> Request:
        """Whose result is what was received, unless another is given."""
        rows, kept, received, place = natives(messages, self._group)
        options = said(name=name)
        if place is not None:
            options = options.on(self._stream_of(place))
        native = self.native.start_messages(rows, options)
        return Request(native, kept, received if result is None else result, place=place)


def _wrapped(native: _native.Communicator | None) -> Communicator | None:
    return None if native is None else Communicator(native)
