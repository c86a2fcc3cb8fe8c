"""The known answers, checked by an independent implementation (pyca/cryptography)."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from aes_exporter.vocabulary import ALGORITHMS, Cell
from aes_exporter.worker.answers import IV, KEY, known_answer, to_prove

MODES: dict[str, modes.CBC | modes.ECB] = {"aes-128-cbc": modes.CBC(IV), "aes-128-ecb": modes.ECB()}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [16, 48, 64, 80, 256, 1024, 65536])
def test_another_implementation_agrees_at_every_size(algorithm: str, size: int) -> None:
    """The continued vectors are true AES at any number of blocks, not only at the four that NIST printed."""
    plaintext, ciphertext = known_answer(algorithm, size)
    encryptor = Cipher(algorithms.AES(KEY), MODES[algorithm]).encryptor()

    assert len(plaintext) == size
    assert encryptor.update(plaintext) == ciphertext


def test_both_operations_are_proven_even_if_one_is_measured() -> None:
    """Measuring encryption of 1024 bytes proves both operations, at that size and at that of the printed vectors."""
    cells = list(to_prove([Cell(algorithm="aes-128-ecb", operation="encrypt", block_size=1024)]))

    assert [(cell.operation, cell.block_size) for cell in cells] == [
        ("encrypt", 64),
        ("encrypt", 1024),
        ("decrypt", 64),
        ("decrypt", 1024),
    ]
    assert {cell.algorithm for cell in cells} == {"aes-128-ecb"}
