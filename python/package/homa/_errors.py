"""What can go wrong, so that a program can tell which key of a plan is at fault."""

from __future__ import annotations

from typing import Any


class HomaError(Exception):
    """What the package raises: here for a damaged result, or a task that cannot be run."""


class PlanError(HomaError, ValueError):
    """A plan that cannot be simulated: its key, and the allowed values.

    Attributes:
        key: the dotted path of the key at fault; empty where no single one is.
        allowed: the values or keys that are allowed, where they can be listed; else empty, and
            the message says it.
        file, line: where the mistake stands, in a plan that was read from a file; else None.
    """

    def __init__(
        self,
        message: str,
        *,
        key: str = "",
        allowed: list[str] | None = None,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        """Make an error of these parts."""
        super().__init__(message)
        self.key = key
        self.allowed = allowed or []
        self.file = file
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes with all parts."""
        return _plan_error, (str(self), self.key, self.allowed, self.file, self.line)


def _plan_error(
    message: str, key: str, allowed: list[str], file: str | None, line: int | None
) -> PlanError:
    return PlanError(message, key=key, allowed=allowed, file=file, line=line)
