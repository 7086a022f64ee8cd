"""What real ports do, class by class: nearly all tensors are paired, none wrongly, and what does not matter does not count.

By default two pairs of each class; twenty of each, in three types, with `-m slow`.
"""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from rewrites import CLASSES, ROUNDING, Rewrite, foreign, recorded, score  # noqa: E402

from twintrace.align import align  # noqa: E402
from twintrace.model.pairs import Part  # noqa: E402

pytestmark = pytest.mark.needs_torch
ENOUGH = 0.99
FEW, MANY = range(1), range(20)
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def aligned(rewrite: Rewrite, folder, dtype):
    """The rewrite, its sides and their alignment: two records of PyTorch, and of another framework, in both directions."""
    one, two = recorded(rewrite, folder, dtype)
    turned = replace(rewrite, region=rewrite.region[::-1])
    for said, left, right in ((rewrite, one, two), (rewrite, one, foreign(two)), (turned, foreign(two), one)):
        yield said, left, right, align(left, right)


def names(calls) -> list[str]:
    return [str(call.site) for call in calls]


def check(name: str, seeds, folder, dtype) -> None:
    asked = missing = 0
    for seed in seeds:
        for rewrite in CLASSES[name](seed):
            for said, left, right, alignment in aligned(rewrite, folder, dtype):
                found = score(said, alignment, left, right, ROUNDING[dtype])
                asked, missing = asked + found.asked, missing + len(found.missing)
                assert not found.wrong, f"{rewrite.name}: {found}"
                assert not (rewrite.agrees and found.counting), f"{rewrite.name}: {found}"
    assert asked
    assert missing <= (1 - ENOUGH) * asked


@pytest.mark.parametrize("name", CLASSES)
def test_what_corresponds_is_paired(name, tmp_path):
    check(name, FEW, tmp_path, torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CLASSES)
def test_what_corresponds_is_paired_in_many_rewrites(name, dtype, tmp_path):
    check(name, MANY, tmp_path, TYPES[dtype])


@pytest.mark.parametrize("seed", FEW)
def test_a_call_that_changes_the_result_counts(seed, tmp_path):
    for rewrite in CLASSES["lone_that_counts"](seed):
        for said, left, right, alignment in aligned(rewrite, tmp_path, torch.float32):
            found = score(said, alignment, left, right, ROUNDING[torch.float32])
            assert found.counting, rewrite.name


@pytest.mark.parametrize("seed", range(5))
def test_another_shape_is_a_pair_at_the_call_that_made_it(seed, tmp_path):
    """The first two results of different shapes come out of what was changed, and nothing after it is alone."""
    guilty = {"ceil": "max_pool2d", "pool": "max_pool2d", "padding": "conv2d", "stride": "conv2d", "cut": "conv2d"}
    for rewrite in CLASSES["shapes"](seed):
        for _, left, right, alignment in aligned(rewrite, tmp_path, torch.float32):
            others = [
                match
                for match in alignment.matches
                for pair in match.tensors
                if pair.part is Part.OUTPUT
                and left.tensor(pair.left).spec.shape != right.tensor(pair.right).spec.shape
                and match.left[0].site.kind == "api"
            ]
            how = rewrite.name.rpartition("-")[2]
            assert others[0].left[-1].site.name.endswith(guilty[how]), rewrite.name
            lone = [item for item in (*alignment.only_left, *alignment.only_right) if not item.skipped]
            assert how == "cut" or not lone


@pytest.mark.parametrize("name", CLASSES)
def test_the_mirror_of_an_alignment_is_that_of_the_mirrored_sides(name, tmp_path):
    for rewrite in CLASSES[name](1):
        one, two = recorded(rewrite, tmp_path)
        there, back = align(one, foreign(two)), align(foreign(two), one)
        calls = sorted((names(match.left), names(match.right)) for match in there.matches)
        assert calls == sorted((names(match.right), names(match.left)) for match in back.matches)
        assert (there.only_left, there.only_right) == (back.only_right, back.only_left)
