"""Passwords: right, wrong and remembered, with the checks counted instead of timed."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from aes_exporter.web import passwords
from aes_exporter.web.passwords import Passwords, TooBusyError
from tests.certificates import ALICE

USERS = {b"alice": ALICE.encode()}
MANY = {f"user {number}".encode(): f"hash {number}".encode() for number in range(5)}


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Replace bcrypt by a comparison with the end of the hash, and return the list of hashes that were checked."""
    checked: list[bytes] = []

    def matches(hashed: bytes, password: bytes) -> bool:
        checked.append(hashed)
        return hashed.endswith(password)

    monkeypatch.setattr(passwords, "_matches", matches)
    return checked


@pytest.mark.parametrize(
    ("name", "password", "right"),
    [
        (b"alice", b"wonderland", True),
        (b"alice", b"Wonderland", False),
        (b"alice", b"", False),
        (b"alice", b"wonderland\0", False),
        (b"Alice", b"wonderland", False),
        (b"", b"wonderland", False),
        (b"\xff", b"wonderland", False),
        (b"alice", b"wonderland" + b"x" * 63, False),
        (b"alice", b"x" * 100_000, False),
    ],
)
async def test_answers(name: bytes, password: bytes, right: bool) -> None:
    """Only the user's own password is right, by real bcrypt; the second answer, remembered, is the same."""
    checker = Passwords()

    assert [await checker.accept(USERS, name, password) for _ in range(2)] == [right, right]


@pytest.mark.parametrize("name", [b"user 3", b"nobody"])
@pytest.mark.parametrize("password", [b"3", b"wrong"])
async def test_each_question_is_checked_once(checks: list[bytes], name: bytes, password: bytes) -> None:
    """A known and an unknown name cost one check each, once; what is too long costs none, for either."""
    checker = Passwords()
    for _ in range(3):
        await checker.accept(MANY, name, password)
    assert len(checks) == 1

    await checker.accept(MANY, name, b"x" * 73)
    assert len(checks) == 1


async def test_the_next_unknown_name_costs_as_much(checks: list[bytes]) -> None:
    """No answer about one name makes that about another name quicker, though both stand for the same hash."""
    checker = Passwords()
    for number in range(10):
        assert not await checker.accept(USERS, f"nobody {number}".encode(), b"same")

    assert len(checks) == 10


async def test_unknown_names_cost_what_known_ones_cost(checks: list[bytes]) -> None:
    """Unknown names are spread over the users' hashes, whatever those cost, and each name stays with its own."""
    checker = Passwords()
    for number in range(100):
        for password in (b"a", b"b"):
            await checker.accept(MANY, f"nobody {number}".encode(), password)

    assert set(checks) == set(MANY.values())
    assert checks[::2] == checks[1::2]


async def test_a_stand_in_lets_nobody_in(checks: list[bytes]) -> None:
    """An unknown name does not get in with the password of the user whose hash stands in for its own."""
    checker = Passwords()

    assert not any([await checker.accept(MANY, b"nobody", str(number).encode()) for number in range(5)])


async def test_users_may_change(checks: list[bytes]) -> None:
    """A removed user and a changed password count at once, whatever is remembered."""
    checker = Passwords()
    assert await checker.accept({b"a": b"hash 1", b"b": b"2"}, b"a", b"1")
    assert not await checker.accept({b"b": b"hash 1"}, b"a", b"1")
    assert not await checker.accept({b"a": b"hash 2"}, b"a", b"1")
    assert await checker.accept({b"a": b"hash 1"}, b"a", b"1")


async def test_guessing_does_not_make_it_forget(checks: list[bytes]) -> None:
    """However many wrong passwords come, a right one stays remembered; the wrong ones are bounded."""
    checker = Passwords()
    await checker.accept(MANY, b"user 1", b"1")
    for number in range(2500):
        await checker.accept(MANY, b"user 2", f"guess {number}".encode())
    checks.clear()

    assert await checker.accept(MANY, b"user 1", b"1")
    assert not await checker.accept(MANY, b"user 2", b"guess 2499")
    assert checks == []
    assert len(checker._wrong) == 1000


async def test_one_check_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks run in a thread, never two at once; equal questions wait for one answer; over 64 waiting is too busy."""
    running, most, checked = 0, 0, 0
    released = threading.Event()

    def matches(hashed: bytes, password: bytes) -> bool:
        nonlocal running, most, checked
        running, checked = running + 1, checked + 1
        most = max(most, running)
        assert released.wait(10)
        running -= 1
        return password == b"right"

    monkeypatch.setattr(passwords, "_matches", matches)
    checker = Passwords()
    asked = [b"right"] * 32 + [f"wrong {number}".encode() for number in range(32)]
    waiting = [asyncio.create_task(checker.accept(USERS, b"alice", password)) for password in asked]
    await asyncio.sleep(0)
    with pytest.raises(TooBusyError):
        await checker.accept(USERS, b"alice", b"one more")
    released.set()

    assert await asyncio.gather(*waiting) == [True] * 32 + [False] * 32
    assert (most, checked) == (1, 33)
    assert not await checker.accept(USERS, b"alice", b"one more")


async def test_passwords_are_not_kept(checks: list[bytes]) -> None:
    """Nothing that is remembered contains a password."""
    checker = Passwords()
    await checker.accept(USERS, b"alice", b"a secret of some length")
    gc.collect()

    remembered = [*checker._right, *checker._wrong]
    assert len(remembered) == 1
    assert all(len(key) == 32 and b"secret" not in key for key in remembered)
