"""What the scheduler and its store say when they refuse: a status for programs, one sentence for people."""

from __future__ import annotations


class Refused(ValueError):
    """A request that cannot be granted; nothing has changed.

    status : one word for programs: ``bad_features``, ``bad_option``, ``unknown_server``, ``unknown_job``,
        ``unknown_assignment``, ``duplicate_job``, ``conflicting_report``, ``too_old``, ``no_room``.
    """

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class StoreError(RuntimeError):
    """The state file cannot do what was asked. What was acknowledged before is kept; this call was not.

    status : ``locked`` (another process has it), ``full``, ``damaged``, ``newer`` (written by a later version), ``foreign``
        (no state file of this program), ``other_settings``, ``failed`` (any other error of the disk), ``closed``.
    """

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
