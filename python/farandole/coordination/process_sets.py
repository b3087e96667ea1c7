# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of ranks whose named tensors a coordinator of their own puts in order, as in Horovod.

Sets are made and removed by all ranks of the job together, members or not, in the same order.
Sets that share no rank work at the same time; so do sets that share some, since every rank that
is in several has a coordinator for each.
"""

from __future__ import annotations

import itertools
import operator
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from farandole import _native
from farandole.core import job
from farandole.errors import InvalidArgumentError, UnsupportedError, WrongTypeError

_lock = threading.RLock()


class ProcessSet:
    """Ranks of the job, in ascending order. Give it to init() or add_process_set() before use.

    Attributes:
        ranks: of the job; None of the global set before init().
        process_set_id: the same on every rank; None before it was added and after its removal.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks: list[int] | None = sorted(ranks)
        self.process_set_id: int | None = None
        self._coordinator: _native.Coordinator | None = None
        self._calls: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._optimizers = itertools.count()
        self.is_tuned = False  # an optimizer tries settings of the coordinator

    def size(self) -> int | None:
        """Number of ranks; None if the set is not in use."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return len(self.ranks)

    def rank(self) -> int | None:
        """This process's position in the set, -1 outside of it; None if it is not in use."""
        if self.process_set_id is None or self.ranks is None:
            return None
        mine = job.rank()
        return self.ranks.index(mine) if mine in self.ranks else -1

    def included(self) -> bool | None:
        """Whether this process is a member; None of the global set before init()."""
        return None if self.ranks is None else job.rank() in self.ranks

    @property
    def coordinator(self) -> _native.Coordinator:
        """What this set's tensors are submitted to. The global set's is made when it is first
        asked for, if that was not in init(): every rank has to ask some time.

        Errors   InvalidArgumentError outside of the set, or if it is not in use.
        """
        if self._coordinator is None:
            if self is global_process_set:
                _start_global()
            elif self.process_set_id is None:
                raise InvalidArgumentError(
                    f"{self} is not in use; allowed are sets given to init() or add_process_set()"
                )
            else:
                raise InvalidArgumentError(
                    f"{self} is used by rank {job.rank()}, allowed are its members"
                )
        assert self._coordinator is not None
        return self._coordinator

    def next_name(self, kind: str) -> str:
        """ "allreduce.noname.3": the same on all ranks that call equally often for each `kind`."""
        return f"{kind}.noname.{next(self._calls[kind])}"

    def next_optimizer(self) -> int:
        """Counts the optimizers that the set's ranks make together."""
        return next(self._optimizers)

    def start_names_over(self) -> None:
        """After all have joined, since some have called more often than others."""
        self._calls.clear()

    def members(self) -> list[int]:
        """The ranks of a set; of the global one also before it has a coordinator."""
        if self is global_process_set:
            return list(range(job.size()))
        return self.ranks or []

    def position(self, rank: int, argument: str) -> int:
        """Where in the set a rank of the job is; raises InvalidArgumentError with `argument`."""
        ranks = self.members()
        everyone = self is global_process_set
        allowed = f"0 to {len(ranks) - 1}" if everyone else f"one of {ranks}"
        try:
            number = operator.index(rank)
        except TypeError as error:
            raise WrongTypeError(f"{argument} is {rank!r}, allowed is {allowed}") from error
        if number not in ranks:
            raise InvalidArgumentError(f"{argument} is {rank}, allowed is {allowed}")
        return ranks.index(number)

    def _open(self, coordinator: _native.Coordinator | None, process_set_id: int) -> None:
        self._coordinator = coordinator
        self._calls.clear()
        self._optimizers = itertools.count()
        self.is_tuned = False
        self.process_set_id = process_set_id

    def _close(self) -> None:
        coordinator, self._coordinator = self._coordinator, None
        if self is not global_process_set:
            self.process_set_id = None
        if coordinator is not None:
            coordinator.close()

    def __str__(self) -> str:
        return f"process set {self.process_set_id} of ranks {self.ranks}"

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # the old one may be held by a thread that the child does not have


os.register_at_fork(after_in_child=_forked)

global_process_set = ProcessSet([])
global_process_set.ranks = None
global_process_set.process_set_id = 0

_added: dict[int, ProcessSet] = {}  # by id, without the global set
_ids = itertools.count(1)


def check_process_set(process_set: ProcessSet, caller: str) -> None:
    """Raises unless it is one; whether it is in use shows when it is used."""
    if not isinstance(process_set, ProcessSet):
        raise WrongTypeError(f"{caller}: process_set is {process_set!r}, allowed is a ProcessSet")


def init(comm: None = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """farandole.init(), the coordinator of all ranks, and these process sets. Collective.

    Errors   UnsupportedError for `comm`, which in Horovod names ranks or an MPI communicator; a
             job here is all processes that were started.
    """
    if comm is not None:
        raise UnsupportedError(
            f"init: comm is {comm!r}, allowed is None; use process_sets for a part of the ranks"
        )
    job.init()
    _start_global()
    if process_sets is None or isinstance(process_sets, str):  # "dynamic": they always are
        return
    for each in process_sets:
        if each.process_set_id is None:
            add_process_set(each)


def _start_global() -> None:
    with _lock:
        if global_process_set._coordinator is not None:
            return
        world = job.world()
        coordinator = _native.Coordinator.create(job.context(), world.native)
        global_process_set.ranks = list(range(job.size()))
        global_process_set._open(coordinator, 0)
        job.before_shutdown.append(_close_all)


def _close_all() -> None:
    """Ends all coordinators of this process, without waiting for other ranks."""
    global _ids
    with _lock:
        for each in [*_added.values(), global_process_set]:
            each._close()
        _added.clear()
        _ids = itertools.count(1)
        global_process_set.ranks = None


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Makes a set usable and returns it. Collective: every rank of the job gives the same ranks.

    Errors   InvalidArgumentError for ranks that do not exist or that a set consists of already;
             MismatchError on the members if they give different ranks.
    """
    _start_global()
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None:
        raise InvalidArgumentError(f"{added} is in use already")
    _check_ranks(added)
    assert added.ranks is not None
    with _lock:
        communicator = job.world().group(added.ranks)
        coordinator = None
        if communicator is not None:
            with communicator:
                coordinator = _native.Coordinator.create(job.context(), communicator.native)
        added._open(coordinator, next(_ids))
        assert added.process_set_id is not None
        _added[added.process_set_id] = added
    return added


def _check_ranks(process_set: ProcessSet) -> None:
    ranks = process_set.ranks or []
    size = job.size()
    valid = all(isinstance(rank, int) and 0 <= rank < size for rank in ranks)
    if not ranks or not valid or len(set(ranks)) < len(ranks):
        raise InvalidArgumentError(
            f"a process set has ranks {ranks}, allowed are different ones of 0 to {size - 1}"
        )
    for other in (global_process_set, *_added.values()):
        if other.ranks == ranks:
            raise InvalidArgumentError(
                f"a process set has ranks {ranks}, allowed is one set with the same ranks: {other}"
            )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends the use of a set; False if it is not in use or the global one. Collective: waits until
    every rank of the job has come, and what the set has in flight then fails."""
    number = process_set.process_set_id
    if number is None or number not in _added:
        return False
    wait_for_all(global_process_set, f"remove_process_set.{number}")
    with _lock:
        del _added[number]
        process_set._close()
    return True


def process_set_by_id(process_set_id: int) -> ProcessSet:
    """The set with this number; 0 is the global one. Raises InvalidArgumentError without one."""
    if process_set_id == 0:
        return global_process_set
    if process_set_id not in _added:
        raise InvalidArgumentError(
            f"process_set_id is {process_set_id}, allowed are {sorted([0, *_added])}"
        )
    return _added[process_set_id]


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of every set in use, by number."""
    sets = {0: global_process_set, **_added}
    return {number: list(each.ranks or []) for number, each in sets.items()}


def wait_for_all(process_set: ProcessSet, name: str) -> None:
    """Returns when every rank of the set has called it."""
    process_set.coordinator.submit([barrier_call(name)])[0].wait()


def barrier_call(name: str) -> _native.TensorCall:
    """What a coordinator is told for a barrier."""
    return _native.TensorCall(name=name, collective=_native.Collective.barrier)
