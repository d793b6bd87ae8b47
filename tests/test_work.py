"""No input of a peer makes a parser work more than in proportion to its size.

Each shape of `hostile_inputs.py` is doubled four times, up to the bound of its case, and the instructions are counted, since a
tracer does not see the time that is spent inside C code, and a clock sees the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hostile_inputs import CASES, SQUARE
from instructions import Instructions, TooLong, is_available

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="counting instructions needs valgrind, on Linux"),
    pytest.mark.timeout(300),
]
MARGIN = 2.25
"""Work in proportion grows by 2 with each doubling, work in the square by 4."""
UNNOTICED = 4_000_000
"""Instructions that nobody notices: about a millisecond."""


@pytest.fixture(scope="module")
def instructions() -> Iterator[Instructions]:
    with Instructions("hostile_inputs") as found:
        yield found


def growth(instructions: Instructions, case: str, shape: str, bound: int) -> tuple[float, int]:
    """Return by how much work grows with each of four doublings, on average, and the work at the bound.

    Less the work for next to nothing, which is the same for each size. Where nobody notices the work, it has no growth.
    """
    constant = instructions.count(case, shape, 1)
    most = instructions.count(case, shape, bound) - constant
    if most < UNNOTICED:
        return 0.0, most
    least = instructions.count(case, shape, bound >> 4) - constant
    return (most / max(1, least)) ** 0.25, most


@pytest.mark.parametrize(("case", "shape"), [(name, shape) for name, case in CASES.items() for shape in case.shapes])
def test_work_grows_with_the_size_of_the_input_and_no_faster(
    case: str, shape: str, instructions: Instructions, record_property: pytest.RecordProperty
) -> None:
    found, work = growth(instructions, case, shape, CASES[case].bound)
    record_property("work", work)
    assert found < MARGIN, f"{case}, {shape!r}: {found:.1f} times the work for twice the input, {work:,} instructions"


@pytest.mark.parametrize("case", SQUARE)
def test_work_in_the_square_of_the_size_is_seen(case: str, instructions: Instructions) -> None:
    """Parsers that this project once had."""
    (shape,) = SQUARE[case].shapes
    assert growth(instructions, case, shape, SQUARE[case].bound)[0] > MARGIN


def test_a_parser_that_takes_too_long_is_named(instructions: Instructions) -> None:
    with pytest.raises(TooLong, match="a quoted string"):
        instructions.count("a quoted string that is tried again at each place", '\\"', 10**6, longest=1)
