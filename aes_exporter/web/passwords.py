"""Names and passwords against bcrypt hashes: one check at a time, in a thread, each answer remembered.

The only file that knows the bcrypt library, and it loads it with the first check. How long an answer takes tells
nothing about which names exist.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping

_REMEMBERED = 1000  # answers of each kind
_MOST_WAITING = 64  # checks; one of cost 10 takes some 50 ms, and clients wait 10 s
_MOST_BYTES = 72  # of a password, that bcrypt takes into account


class TooBusyError(Exception):
    """So many checks are waiting that the client would be gone before its turn."""


class Passwords:
    """Answers whether a password is right. Holds no password, only keyed digests of those it was asked about.

    Right and wrong ones are remembered apart, so that guessing does not push out those who scrape.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._right: dict[bytes, None] = {}
        self._wrong: dict[bytes, None] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def accept(self, users: Mapping[bytes, bytes], name: bytes, password: bytes) -> bool:
        """Return whether `password` is that of the user `name`. Raises TooBusyError.

        An unknown name is checked against the hash of some user, always the same one for that name: so it costs what a
        known one costs, even where users' hashes differ in cost.
        """
        hashed = users.get(name) or self._decoy(users, name)
        key = self._digest(name in users, name, hashed, password)
        if key in self._right:
            return True
        if key in self._wrong or len(password) > _MOST_BYTES:
            return False
        return await self._check_in_turn(key, hashed, password, known=name in users)

    async def _check_in_turn(self, key: bytes, hashed: bytes, password: bytes, *, known: bool) -> bool:
        if self._waiting >= _MOST_WAITING:
            raise TooBusyError
        self._waiting += 1
        try:
            async with self._turn:
                if key not in self._right and key not in self._wrong:
                    matches = await asyncio.to_thread(_matches, hashed, password)
                    _remember(self._right if matches and known else self._wrong, key)
        finally:
            self._waiting -= 1
        return key in self._right

    def _decoy(self, users: Mapping[bytes, bytes], name: bytes) -> bytes:
        number = int.from_bytes(self._digest(name))
        return list(users.values())[number % len(users)]

    def _digest(self, *parts: bytes | bool) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in parts:
            digest.update(hashlib.blake2b(bytes([part]) if isinstance(part, bool) else part).digest())
        return digest.digest()


def _matches(hashed: bytes, password: bytes) -> bool:
    import bcrypt  # noqa: PLC0415  only those who have users pay for it

    return bcrypt.checkpw(password, hashed)


def _remember(answers: dict[bytes, None], key: bytes) -> None:
    if len(answers) >= _REMEMBERED:
        del answers[next(iter(answers))]
    answers[key] = None
