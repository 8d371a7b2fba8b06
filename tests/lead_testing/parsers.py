"""What a test of hostile bytes knows of a parser."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Parser:
    """One parser: sound inputs, how it is called, what it may raise, and what makes a spoiled input plausible again."""

    sound: tuple[bytes, ...]
    parse: Callable[[bytes], object]
    raises: tuple[type[Exception], ...]
    signed: Callable[[bytes], bytes] = bytes  # with right checksums over what it holds
    draw: Callable[[random.Random], bytes] | None = None  # hostile inputs that know the format
    apart: bool = False  # tried in a process of its own, which may crash
