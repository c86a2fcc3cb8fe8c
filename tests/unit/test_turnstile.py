"""The order in which requests that wait together are let through."""

from __future__ import annotations

import asyncio

import pytest

from aes_exporter.server.turnstile import Turnstile


class Crowd:
    """Numbered requests at a turnstile, and the order in which they were let through."""

    def __init__(self) -> None:
        self.turnstile = Turnstile()
        self.order: list[int] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def arrive(self, *numbers: int, rested: bool = True) -> None:
        for number in numbers:
            self.tasks[number] = asyncio.create_task(self._pass(number, rested))

    async def _pass(self, number: int, rested: bool) -> None:
        await self.turnstile.wait(rested=rested)
        self.order.append(number)

    async def passed(self, count: int = 0) -> list[int]:
        """Return the order once so many, or all who came, are through."""
        for _ in range(10_000):
            if len(self.order) >= (count or len(self.tasks)):
                return self.order
            await asyncio.sleep(0)
        pytest.fail(f"only {self.order} got through")


def test_from_both_ends() -> None:
    """A crowd goes through from both ends: who came first and who came last wait shortest."""

    async def scenario() -> None:
        crowd = Crowd()
        crowd.arrive(*range(7))
        assert await crowd.passed() == [0, 6, 1, 5, 2, 4, 3]

    asyncio.run(scenario())


def test_newcomer() -> None:
    """Who comes to a crowd that waits is through before most of it."""

    async def scenario() -> None:
        crowd = Crowd()
        crowd.arrive(*range(200))
        await crowd.passed(20)
        crowd.arrive(1000)
        assert 1000 in (await crowd.passed(30))[:30]
        assert sorted(await crowd.passed()) == [*range(200), 1000]

    asyncio.run(scenario())


def test_nobody_is_forgotten() -> None:
    """The first is through after as many turns as were waiting before it, however many keep coming."""

    async def scenario() -> None:
        crowd = Crowd()
        crowd.arrive(*range(50))
        for number in range(50, 150):
            await asyncio.sleep(0)
            crowd.arrive(3 * number, 3 * number + 1, 3 * number + 2)
        assert set(range(50)) <= set(crowd.order)

    asyncio.run(scenario())


def test_who_was_just_answered() -> None:
    """Clients that were just answered gain nothing by coming last, nor by coming again and again."""

    async def scenario() -> None:
        crowd = Crowd()
        crowd.arrive(*range(100), rested=False)
        crowd.arrive(1000)
        crowd.arrive(*range(100, 200), rested=False)
        assert await crowd.passed(4) == [0, 1000, 1, 2]
        assert await crowd.passed() == [0, 1000, *range(1, 200)]

    asyncio.run(scenario())


@pytest.mark.parametrize("gone", [{0}, {9}, {0, 9}, {4, 5}, set(range(9)), set(range(10))])
def test_those_who_leave(gone: set[int]) -> None:
    """Who gives up takes nobody's turn, and is not remembered."""

    async def scenario() -> None:
        crowd = Crowd()
        crowd.arrive(*range(10))
        await asyncio.sleep(0)
        for number in gone:
            crowd.tasks.pop(number).cancel()
        crowd.arrive(10)
        assert sorted(await crowd.passed()) == sorted({*range(11)} - gone)
        await asyncio.sleep(0)
        assert not any(vars(crowd.turnstile).values())

    asyncio.run(scenario())
