"""A JPEG is decoded into its batch; pixels are OpenCV's bit for bit, however the JPEG was written."""

from collections.abc import Iterator

import cv2
import numpy as np
import pytest
import torch

from lead_trainer.contract.samples import Sample, Samples
from lead_trainer.data.batch_slots import RowKeys, Slot
from lead_trainer.data.jpeg_picture import JpegPicture, stored_picture
from lead_trainer.data.loader import Loader
from lead_trainer.data.process_loader import ProcessLoader
from lead_trainer.data.retrying_source import decoded_sample
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.dataset_collate import collate

SAMPLINGS = (
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)
EXIF_UPSIDE_DOWN = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0\0\0\0\0"


def scene(height: int, width: int) -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 256, (1 + height // 8, 1 + width // 8, 3), np.uint8)
    return np.asarray(cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC))


def jpeg(picture: np.ndarray, *options: int) -> memoryview:
    return memoryview(cv2.imencode(".jpg", picture, options)[1].tobytes())


def by_opencv(image: memoryview) -> np.ndarray:
    return np.asarray(cv2.cvtColor(cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB))


@pytest.mark.parametrize("size", [(1, 1), (9, 7), (33, 17), (96, 288)])
def test_pixels_are_opencvs(size: tuple[int, int]) -> None:
    for quality in (5, 30, 90, 100):
        for sampling in SAMPLINGS:
            for progressive in (0, 1):
                image = jpeg(scene(*size), cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
                             sampling, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)  # fmt: skip
                found = stored_picture(image)
                assert isinstance(found, JpegPicture) and found.shape == (*size, 3)
                assert np.array_equal(np.asarray(found), by_opencv(image))
                assert np.array_equal(np.asarray(stored_picture(image, "BGR")), by_opencv(image)[..., ::-1])


def test_what_only_opencv_reads_is_decoded_at_once() -> None:
    colours = scene(24, 32)
    plain = bytes(jpeg(colours))
    segment = b"\xff\xe1" + (2 + len(EXIF_UPSIDE_DOWN)).to_bytes(2, "big") + EXIF_UPSIDE_DOWN
    images = {
        "grey": jpeg(colours[..., 0]),
        "png": memoryview(cv2.imencode(".png", colours)[1].tobytes()),
        "turned": memoryview(plain[:2] + segment + plain[2:]),
    }
    for name, image in images.items():
        found = stored_picture(image)
        assert isinstance(found, np.ndarray), name
        assert np.array_equal(found, by_opencv(image)), name
    assert np.array_equal(np.asarray(stored_picture(images["turned"])), by_opencv(jpeg(colours))[::-1, ::-1])


def test_a_broken_picture_is_refused() -> None:
    with pytest.raises(BadData, match="build the cache again"):
        stored_picture(memoryview(b"no picture"))
    with pytest.raises(BadData, match="build the cache again"):
        np.asarray(stored_picture(jpeg(scene(64, 64))[:-200]))


def test_pixels_are_written_into_the_row() -> None:
    images = [jpeg(scene(16, 24)), jpeg(255 - scene(16, 24))]
    slot = Slot(2, pinned=False)
    for row, image in enumerate(images):
        slot.put(row, {"rgb": stored_picture(image), "index": row}, RowKeys())
    rgb = slot.batch(collate, RowKeys())["rgb"]
    assert rgb.dtype == torch.uint8 and np.array_equal(rgb.numpy(), np.stack([by_opencv(image) for image in images]))


class Pictures(Samples):
    """Four pictures, one of them broken if asked."""

    def __init__(self, broken: int | None = None) -> None:
        self.images = [jpeg(np.roll(scene(16, 24), number, axis=0)) for number in range(4)]
        if broken is not None:
            self.images[broken] = self.images[broken][:-50]

    def __len__(self) -> int:
        return len(self.images)

    def epoch_draw(self, epoch: int) -> np.ndarray:
        return np.arange(4)

    def name(self, index: int) -> str:
        return f"Town01/route frame {index:04d}"

    def load(self, index: int, epoch: int) -> Sample:
        return {"rgb": stored_picture(self.images[index]), "index": index}


@pytest.fixture(params=[Loader, ProcessLoader])
def kind(request: pytest.FixtureRequest) -> Iterator[type[Loader]]:
    yield request.param


def test_a_sample_decoded_in_a_thread_of_its_own_names_itself() -> None:
    source = Pictures(broken=2)
    assert np.array_equal(decoded_sample(source, 1, source.load(1, 0))["rgb"], by_opencv(source.images[1]))
    with pytest.raises(BadData, match=r"sample 2 \(Town01/route frame 0002\)"):
        decoded_sample(source, 2, source.load(2, 0))


def test_both_loaders_deliver_the_pixels(kind: type[Loader]) -> None:
    source = Pictures()
    for batch in kind(source, collate, batch_size=2, seed=0).batches(0):
        for index, rgb in zip(batch["index"], batch["rgb"], strict=True):
            assert np.array_equal(rgb.numpy(), by_opencv(source.images[int(index)]))


def test_an_error_names_the_sample_whose_picture_is_broken(kind: type[Loader]) -> None:
    with pytest.raises(BadData, match=r"sample 2 \(Town01/route frame 0002\): .*build the cache again"):
        list(kind(Pictures(broken=2), collate, batch_size=2, seed=0).batches(0))
