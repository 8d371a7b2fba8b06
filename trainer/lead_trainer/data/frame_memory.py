"""Memory of a thread for the decoded frames of one sample, which the next sample writes again.

Fresh pages for pixels cost more than most changes of them, and a frame that stays in the processor's cache is read
again for a fraction of what one in memory costs. Used by the recipes whose samples hold several pictures.
"""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from lead_trainer.data.jpeg_picture import JpegPicture

Pixels = npt.NDArray[np.uint8]


class FrameMemory:
    """Frames (N, H, W, 3): all of a sample in `whole`, and two single ones, each of which stays in the cache."""

    def __init__(self, shape: tuple[int, int, int, int]) -> None:
        self.shape = shape
        self.whole: Pixels = np.empty(shape, np.uint8)
        self.read, self.spare = np.empty((2, *shape[1:]), np.uint8)

    def decoded(self, pictures: Sequence[JpegPicture | Pixels]) -> Iterator[Pixels]:
        """Yields the pixels of one picture after the other, each valid until the next is asked for."""
        for picture in pictures:
            if isinstance(picture, JpegPicture):
                picture.write_into(self.read)
                yield self.read
            else:
                yield picture


_OF_THREAD = threading.local()


def frame_memory(shape: tuple[int, int, int, int]) -> FrameMemory:
    """Returns the memory that this thread has for frames (N, H, W, 3)."""
    memory: FrameMemory | None = getattr(_OF_THREAD, "memory", None)
    if memory is None or memory.shape != shape:
        memory = _OF_THREAD.memory = FrameMemory(shape)
    return memory
