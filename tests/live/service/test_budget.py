"""The retry budget."""

from __future__ import annotations

import pytest

from queuewise.live.service.budget import WINDOW, RetryBudget
from queuewise.live.service.config import RetriesConfig


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_reserve_is_there_at_once_and_comes_back() -> None:
    clock = Clock()
    budget = RetryBudget(RetriesConfig(share=0.0, per_second=2.0), clock)
    assert sum(budget.spend() for _ in range(100)) == 2 * WINDOW
    clock.now += 1.5
    assert sum(budget.spend() for _ in range(100)) == 3
    clock.now += 1e6
    assert budget.remaining == 2 * WINDOW


def test_requests_earn_a_share_of_retries() -> None:
    budget = RetryBudget(RetriesConfig(share=0.2, per_second=0.0), Clock())
    spent = 0
    for _ in range(1000):
        budget.request()
        spent += budget.spend()
    assert spent == pytest.approx(200, abs=1)


def test_what_was_earned_fades() -> None:
    clock = Clock()
    budget = RetryBudget(RetriesConfig(share=1.0, per_second=0.0), clock)
    for _ in range(100):
        budget.request()
    clock.now += WINDOW
    assert budget.remaining == pytest.approx(100 * 0.36788, rel=1e-4)
    clock.now += 100 * WINDOW
    assert not budget.spend()


def test_what_was_not_used_comes_back() -> None:
    budget = RetryBudget(RetriesConfig(share=0.0, per_second=0.1), Clock())
    assert budget.spend() and not budget.spend()
    budget.give_back()
    assert budget.spend() and not budget.spend()


def test_none_at_all() -> None:
    budget = RetryBudget(RetriesConfig(share=0.0, per_second=0.0), Clock())
    budget.request()
    assert not budget.spend()


def test_in_a_steady_stream_the_share_is_kept() -> None:
    """100 requests a second, all of which want a retry: a fifth gets one, and the reserve."""
    clock = Clock()
    budget = RetryBudget(RetriesConfig(share=0.2, per_second=10.0), clock)
    spent = 0
    for _ in range(100 * 60):
        clock.now += 0.01
        budget.request()
        spent += budget.spend()
    assert spent == pytest.approx(0.2 * 6000 + 10 * 60 + 10 * WINDOW, rel=0.02)
