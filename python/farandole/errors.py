# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One exception class per kind of failure, named for what the caller may do next."""


class FarandoleError(RuntimeError):
    """Base of all errors that the library raises."""


class InvalidArgumentError(FarandoleError, ValueError):
    """The caller's mistake, found before any byte moved. The call may be repeated."""


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that is not allowed."""


class UnsupportedError(FarandoleError):
    """This build, transport or front end cannot do it."""


class MismatchError(FarandoleError):
    """Ranks disagree on operation, dtype, shape or order. The communicator lives on."""


class TimedOutError(FarandoleError, TimeoutError):
    """A deadline passed. The communicator is broken."""


class RankFailed(FarandoleError):  # noqa: N818 - the name that the documentation of MPI made common
    """A rank is gone. Every operation on a communicator that contains it raises this.

    Attributes:
        rank: the rank that is gone, in the world; -1 when nobody is, but data between two ranks,
            which the message names, do not arrive.
        host: its host.
        pid: its process id there.
        operation: what was in flight here, as in "allreduce 'grad' (communicator 0, ...)".
    """

    def __init__(
        self, message: str, rank: int = -1, host: str = "", pid: int = 0, operation: str = ""
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.pid = pid
        self.operation = operation


class AbortedError(FarandoleError):
    """A member ended the communicator with abort(). Every operation there raises this; other
    communicators go on.

    Attributes:
        rank: the rank that aborted it, in the world.
        host: its host.
        pid: its process id there.
    """

    def __init__(
        self, message: str, rank: int = -1, host: str = "", pid: int = 0, operation: str = ""
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.pid = pid


class InternalError(FarandoleError):
    """A bug of the library, or the system refused a resource. Please report it."""
