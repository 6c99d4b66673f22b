"""What runs where an executor's workers are. Its module is imported by name there."""

from __future__ import annotations

from ._native import perform_task


def perform(task: str) -> str:
    """Run a simulation of a sweep; returns its result for the sweep's store."""
    return perform_task(task)
