"""Every kernel, given records in which each word in turn is another: see `spoiled`."""

from __future__ import annotations

from functools import cache

import pytest

from popc_runtime.native import Library, find_library, variants
from tests.native.recorded import Sample, packed_samples, samples
from tests.native.spoiled import complaints

pytestmark = [
    pytest.mark.skipif(not variants(), reason="there are no native kernels"),
    pytest.mark.xdist_group("every instruction"),  # problems are found once
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@cache
def _samples(variant: str) -> dict[str, list[Sample]]:
    library = find_library(variant)
    assert library is not None
    return samples(library)


def test_all_kernels_are_tried(library: Library) -> None:
    assert _samples(library.variant).keys() == set(library.numbers)


def test_records_of_any_words_are_refused_or_keep_to_their_memory(library: Library) -> None:
    few = {kernel: listed[:1] for kernel, listed in _samples(library.variant).items()}
    found = list(complaints(library, few))
    assert not found, "\n".join(found)


def test_weights_in_panels(library: Library) -> None:
    found = packed_samples(library)
    assert found.keys() == {"Product_f32", "ConvDirect_f32", "WinogradConv_f32"}
    complained = list(complaints(library, found))
    assert not complained, "\n".join(complained)


@pytest.mark.slow
def test_more_records(library: Library) -> None:
    found = list(complaints(library, _samples(library.variant)))
    assert not found, "\n".join(found)
