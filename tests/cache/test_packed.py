"""Numbers in three bytes read back as they were written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.packed import LIMIT, WIDTH, PackedArray, pack, pack_few, unpacker

numbers = st.lists(st.integers(0, LIMIT - 1), max_size=80)


@given(numbers)
def test_numbers_read_back(values: list[int]) -> None:
    data = pack(np.array(values, np.uint32))
    assert len(data) == WIDTH * len(values)
    assert unpacker(len(values))(data) == tuple(values)
    assert pack_few(values) == data


@given(numbers, st.integers(0, 90), st.integers(0, 90))
def test_any_part_of_a_file_reads_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], start: int, end: int
) -> None:
    path = tmp_path_factory.mktemp("packed") / "numbers"
    path.write_bytes(pack(np.array(values, np.uint32)))
    array = PackedArray(path)
    assert len(array) == len(values)
    assert array.between(start, end) == values[start:end]


def test_a_number_that_needs_more_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="16777216 does not fit"):
        pack(np.array([1, LIMIT], np.uint32))
