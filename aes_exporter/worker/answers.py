"""Known answers: what AES-128 must give for every block size, from the vectors of NIST SP 800-38A.

The standard's vectors (appendix F.1.1, F.1.2, F.2.1, F.2.2) are four blocks long, but libraries switch code by length,
so the answer is continued to any number of blocks by repeating the ciphertext: in ECB the plaintext then repeats too,
and in CBC so does all but the first block of each repetition, whose predecessor is the last ciphertext block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aes_exporter.vocabulary import OPERATIONS, Cell

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
IV = bytes.fromhex("000102030405060708090a0b0c0d0e0f")

_PLAINTEXT = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172a"
    "ae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52ef"
    "f69f2445df4f9b17ad2b417be66c3710"
)
_CIPHERTEXT = {
    "aes-128-ecb": bytes.fromhex(
        "3ad77bb40d7a3660a89ecaf32466ef97"
        "f5d3d58503b9699de785895a96fdbaaf"
        "43b1cd7f598ece23881b00e3ed030688"
        "7b0c785e27e8ad3f8223207104725dd4"
    ),
    "aes-128-cbc": bytes.fromhex(
        "7649abac8119b246cee98e9b12e9197d"
        "5086cb9b507219ee95db113a917678b2"
        "73bed6b8e3c1743b7116e69e22229516"
        "3ff1caa1681fac09120eca307586e1a7"
    ),
}


def known_answer(algorithm: str, size: int) -> tuple[bytes, bytes]:
    """Return (plaintext, ciphertext) of `size` bytes under KEY and, for CBC, IV."""
    ciphertext = _CIPHERTEXT[algorithm]
    again = _PLAINTEXT
    if algorithm == "aes-128-cbc":
        again = bytes(p ^ i ^ c for p, i, c in zip(_PLAINTEXT[:16], IV, ciphertext[-16:], strict=True)) + again[16:]
    repetitions = -(-size // len(_PLAINTEXT))
    return (_PLAINTEXT + again * (repetitions - 1))[:size], (ciphertext * repetitions)[:size]


def to_prove(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Yield each cell whose answer must be right: both operations of every algorithm and size that is measured.

    The vectors as they are printed (64 bytes) are always among them.
    """
    cells = list(cells)
    for algorithm in dict.fromkeys(cell.algorithm for cell in cells):
        sizes = {cell.block_size for cell in cells if cell.algorithm == algorithm} | {len(_PLAINTEXT)}
        for operation in OPERATIONS:
            for size in sorted(sizes):
                yield Cell(algorithm=algorithm, operation=operation, block_size=size)
