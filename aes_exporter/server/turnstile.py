"""The order in which requests are answered when many have come at once."""

from __future__ import annotations

import asyncio
from collections import deque

_Turn = asyncio.Future[None]


class Turnstile:
    """Lets two waiting requests go on in each turn of the event loop: the one that came first, and one that came last.

    First come, first served alone would have a scrape wait for everybody in the crowd that came a moment before it.
    Last come, first served alone would forget those at the other end while others keep coming.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Turn] = deque()
        self._rested: deque[_Turn] = deque()  # those of them that may go on because they came last

    async def wait(self, *, rested: bool) -> None:
        """Wait for one's turn. Only requests of clients that are `rested`, not just answered, gain by coming last."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._let_through)
        turn = loop.create_future()
        self._waiting.append(turn)
        if rested:
            self._rested.append(turn)
        await turn

    def _let_through(self) -> None:
        for queue, end in ((self._waiting, 0), (self._rested, -1)):
            self._forget_served()
            if queue:
                queue[end].set_result(None)
        self._forget_served()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_through)

    def _forget_served(self) -> None:
        """Drop those at the ends that have had their turn or have gone away."""
        for queue in (self._waiting, self._rested):
            while queue and queue[0].done():
                queue.popleft()
            while queue and queue[-1].done():
                queue.pop()
