"""The errors this package raises on purpose, and whose fault each one is.

::

    BenchError                  anything below; carries the exit code of the command line
    |-- SuiteError              ours: the suite, an argument or an input file is wrong      exit 2
    |-- JournalError            ours: the run directory cannot be used as asked             exit 2
    |-- CheckFailed             a gate, a check or a verdict says no                        exit 1
    |   `-- CannotTell          a gate has too few trials to say yes or no                  exit 4
    `-- EngineError             theirs: the server is absent, refuses or misbehaves         exit 3

A message is one sentence that says what is wrong and where, then what to do. Errors of other
libraries stop at the module that called them: only `wire/` knows aiohttp, for instance. A request
that fails is not an error at all but data: see `records.Failure`.
"""

from __future__ import annotations

from typing import ClassVar


class BenchError(Exception):
    """Base of every error raised on purpose; `str(error)` is fit to be shown to a person."""

    exit_code: ClassVar[int] = 1


class SuiteError(BenchError):
    """A suite, an argument or an input file of the user's is wrong."""

    exit_code: ClassVar[int] = 2


class JournalError(BenchError):
    """A run directory is missing, in use, of a later version, or damaged beyond a torn last line."""

    exit_code: ClassVar[int] = 2


class EngineError(BenchError):
    """A server cannot be reached, started or understood."""

    exit_code: ClassVar[int] = 3


class CheckFailed(BenchError):
    """A preflight check or a gate rule failed; its table has been printed already."""

    exit_code: ClassVar[int] = 1


class CannotTell(CheckFailed):
    """A gate rule can be neither confirmed nor refuted with the trials at hand."""

    exit_code: ClassVar[int] = 4
