"""Planes hold what the pixels held."""

import numpy as np
import pytest

from lead_trainer.data.channels import channels_first


@pytest.mark.parametrize("shape", [(4, 6, 3), (1, 1, 3), (5, 7, 1), (384, 1152, 3)])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_planes_equal_the_transposed_picture(shape: tuple[int, int, int], kind: type) -> None:
    picture = np.random.default_rng(0).integers(0, 250, shape).astype(kind)
    planes = channels_first(picture)
    np.testing.assert_array_equal(planes, picture.transpose(2, 0, 1))
    assert planes.flags.c_contiguous and planes.dtype == picture.dtype


def test_columns_cut_from_a_wider_picture_are_taken_right() -> None:
    picture = np.arange(4 * 8 * 3, dtype=np.uint8).reshape(4, 8, 3)[:, 2:5]
    np.testing.assert_array_equal(channels_first(picture), picture.transpose(2, 0, 1))
