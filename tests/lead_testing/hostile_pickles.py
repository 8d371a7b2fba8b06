"""Hostile pickle streams, made of opcodes: what a file would hold whose author knows pickle, numpy and torch.

`hostile_stream` draws one: a known attack, a random program of opcodes with a preference for those that call, build and
share, or a sound stream with opcodes changed, doubled, swapped and left out. Byte flips are `hostile_bytes.py`'s.
"""

import pickle
import pickletools
import random
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

STOP, MARK, REDUCE, BUILD, MEMOIZE, NONE, TUPLE1, LIST, DICT, EMPTY_SET = (
    b".",
    b"(",
    b"R",
    b"b",
    b"\x94",
    b"N",
    b"\x85",
    b"]",
    b"}",
    b"\x8f",
)
HUGE = (0, 1, 2, 7, 8, 63, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NAMES = (
    ("os", "system"), ("builtins", "eval"), ("builtins", "exec"), ("builtins", "getattr"), ("builtins", "open"),
    ("builtins", "__import__"), ("builtins", "print"), ("builtins", "slice"), ("builtins", "bytearray"),
    ("builtins", "list"), ("builtins", "dict"), ("builtins", "memoryview"), ("subprocess", "Popen"),
    ("posix", "system"), ("ctypes", "CDLL"), ("importlib", "import_module"), ("copyreg", "_reconstructor"),
    ("copyreg", "__newobj__"), ("functools", "partial"), ("operator", "attrgetter"), ("types", "CodeType"),
    ("numpy", "load"), ("numpy", "memmap"), ("numpy", "frombuffer"), ("numpy", "object_"), ("numpy", "void"),
    ("numpy", "dtype.type"), ("numpy", "ndarray.__setstate__"), ("numpy.random._pickle", "__generator_ctor"),
    ("numpy.core.multiarray", "fromfile"), ("numpy._core.multiarray", "from_dlpack"), ("torch", "load"),
    ("torch.hub", "load"), ("torch", "FloatStorage"), ("torch.storage", "UntypedStorage"),
    ("torch._utils", "_rebuild_tensor"),
)  # fmt: skip
ALLOWED = (
    ("numpy", "dtype"), ("numpy", "ndarray"), ("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"), ("numpy._core.numeric", "_frombuffer"), ("builtins", "set"),
    ("builtins", "frozenset"), ("builtins", "complex"), ("builtins", "bytes"), ("collections", "OrderedDict"),
    ("_codecs", "encode"), ("torch._utils", "_rebuild_tensor_v2"), ("torch.storage", "_load_from_bytes"),
)  # fmt: skip
CODES = (
    "O8", "O", "V8", "f4", "f8", "i8", "u1", "b1", "U3", "S5", "U0", "S0", "f4,i8", "(2,3)f4", "M8[ns]", "m8", "c16",
    "f16", "U9999999999",
)  # fmt: skip
ORDERS = ("<", ">", "|", "=", "", "<<", "C", "F", "A", "K")


def text(value: str) -> bytes:
    """Pushes a str."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def small(value: bytes) -> bytes:
    """Pushes bytes."""
    return b"B" + struct.pack("<I", len(value)) + value


def integer(value: int) -> bytes:
    """Pushes an int of any size."""
    size = max(1, (value.bit_length() + 8) // 8)
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def name(module: str, attribute: str) -> bytes:
    """Pushes what a name resolves to."""
    return text(module) + text(attribute) + b"\x93"


def many(*items: bytes) -> bytes:
    """Pushes a tuple."""
    return MARK + b"".join(items) + b"t"


def array_type(code: str, order: str = "<", *, flags: int = 0, fields: bytes = NONE, subarray: bytes = NONE) -> bytes:
    """Pushes a numpy type with its state."""
    of_name = name("numpy", "dtype") + many(text(code), b"\x89", b"\x88") + REDUCE
    return of_name + type_state(order, flags, fields, subarray) + BUILD


def type_state(order: str, flags: int = 0, fields: bytes = NONE, subarray: bytes = NONE) -> bytes:
    """Pushes the state of a numpy type."""
    return many(integer(3), text(order), subarray, fields, fields, integer(-1), integer(-1), integer(flags))


def stream(program: bytes, protocol: int = 4) -> bytes:
    """Returns a whole stream."""
    return b"\x80" + bytes([protocol]) + program + STOP


def object_at(address: int, core: str = "numpy.core.multiarray") -> bytes:
    """Pushes the Python object at an address, by a type of objects whose flags the stream has cleared."""
    content = small(struct.pack("<Q", address % 2**64))
    return name(core, "scalar") + many(array_type("O8", "|"), content) + REDUCE


def object_array(address: int) -> bytes:
    """Pushes an array of objects whose bytes are addresses."""
    blank = name("numpy.core.multiarray", "_reconstruct") + many(
        name("numpy", "ndarray"), many(integer(0)), small(b"b")
    )
    state = many(
        integer(1), many(integer(1)), array_type("O8", "|"), b"\x89", small(struct.pack("<Q", address % 2**64))
    )
    return blank + REDUCE + state + BUILD


def laughs(levels: int, opening: bytes = LIST, grow: bytes = b"(h%ch%ce") -> bytes:
    """Pushes containers that each hold the one before twice: a walk over them takes 2^levels steps."""
    program = opening + MEMOIZE
    for level in range(levels):
        program += opening + MEMOIZE + grow.replace(b"%c", bytes([level]))
    return program


def shared_tuples(levels: int) -> bytes:
    """Pushes a tuple whose hash takes 2^levels steps."""
    program = NONE + TUPLE1 + MEMOIZE
    for level in range(levels):
        program += b"h" + bytes([level]) + b"h" + bytes([level]) + b"\x86" + MEMOIZE
    return program


FROM_BUFFER = name("numpy.core.numeric", "_frombuffer")


def from_buffer(content: bytes, code: str, shape: int, order: str = "<") -> bytes:
    """Pushes an array of one axis."""
    return FROM_BUFFER + many(small(content), array_type(code, order), many(integer(shape)), text("C")) + REDUCE


ATTACKS: dict[str, Callable[[], bytes]] = {
    "an object at an address": lambda: object_at(0xDEAD0000) + b")" + REDUCE,
    "an object at an address, numpy 2": lambda: object_at(0xDEAD0000, "numpy._core.multiarray") + b")" + REDUCE,
    "an array of objects": lambda: object_array(0xDEAD0000),
    "a type of fields": lambda: array_type("V8", "|", fields=many(text("a"))),
    "a type whose state comes twice": lambda: array_type("f8") + type_state("|") + BUILD,
    "a state for a list": lambda: LIST + DICT + BUILD,
    "a state for a name": lambda: FROM_BUFFER + DICT + text("__defaults__") + many() + b"s" + BUILD,
    "attributes of a name": lambda: FROM_BUFFER + NONE + DICT + text("__code__") + NONE + b"s" + b"\x86" + BUILD,
    "an array of another length": lambda: from_buffer(b"12345678", "f8", 2),
    "an array of a huge shape": lambda: FROM_BUFFER
        + many(small(b""), array_type("u1", "|"), many(integer(2**62), integer(0)), text("C")) + REDUCE,
    "items of no size": lambda: from_buffer(b"", "S0", 2**62),
    "booleans that are none": lambda: from_buffer(b"\xff" * 8, "b1", 8),
    "text that is none": lambda: from_buffer(b"\xff" * 8, "U1", 2),
    "a list that holds itself": lambda: LIST + MEMOIZE + b"h\x00a",
    "a dict that holds itself": lambda: DICT + MEMOIZE + text("a") + b"h\x00s",
    "lists shared until a walk never ends": lambda: laughs(100),
    "a hash that never ends": lambda: DICT + shared_tuples(100) + NONE + b"s",
    "100,000 lists in lists": lambda: LIST * 100_000 + b"a" * 99_999,
    "100,000 tuples in tuples": lambda: NONE + TUPLE1 * 100_000,
    "100,000 tuples in tuples as a key": lambda: DICT + NONE + TUPLE1 * 100_000 + NONE + b"s",
    "100,000 marks": lambda: MARK * 100_000,
    "2,000,000 lists": lambda: LIST * 2_000_000,
    "a memo of 2^32 places": lambda: NONE + b"r" + struct.pack("<I", 2**32 - 1),
    "a memo of text": lambda: NONE + b"p99999999999\n",
    "text of 2^63 bytes": lambda: b"\x8d" + struct.pack("<Q", 2**63 - 1) + b"a",
    "bytes of 2^63 bytes": lambda: b"\x8e" + struct.pack("<Q", 2**63 - 1) + b"a",
    "a bytearray of 2^40 bytes": lambda: b"\x96" + struct.pack("<Q", 2**40) + b"a",
    "a frame of 2^63 bytes": lambda: b"\x95" + struct.pack("<Q", 2**63 - 1) + NONE,
    "a number of 2^31 bytes": lambda: b"\x8b" + struct.pack("<I", 2**31 - 1),
    "a number of 1,000,000 digits": lambda: b"I" + b"9" * 1_000_000 + b"\n",
    "keys with one hash": lambda: DICT + MARK + b"".join(integer(i * (2**61 - 1)) + NONE for i in range(20_000)) + b"u",
    "a buffer from outside": lambda: b"\x97\x98",
    "an object from outside": lambda: text("storage") + b"Q",
    "an object from outside, as text": lambda: b"Pstorage\n",
    "a registered extension": lambda: b"\x82\x01",
    "an instance": lambda: MARK + b"ios\nsystem\n",
    "an object of a class": lambda: MARK + name("builtins", "complex") + b"o",
    "a new object": lambda: name("builtins", "complex") + b")\x81",
    "a new object with names": lambda: name("builtins", "complex") + b")" + DICT + b"\x92",
    "a method by a dotted name": lambda: name("numpy", "ndarray.tofile"),
    "a set of lists": lambda: EMPTY_SET + MARK + LIST + b"\x90",
    "a slice": lambda: name("builtins", "slice") + many(NONE, NONE, NONE) + REDUCE,
    "a class as a value": lambda: name("numpy", "ndarray"),
    "a type as a value": lambda: array_type("f4"),
    "an array copied a million times": lambda: small(bytes(1 << 20)) + MEMOIZE + array_type("u1", "|") + MEMOIZE
        + FROM_BUFFER + MEMOIZE + MARK
        + (b"h\x02" + b"(h\x00h\x01" + many(integer(1 << 20)) + text("C") + b"tR") * 1000 + b"t",
    "no value": lambda: b"",
    "two values": lambda: NONE + NONE,
}  # fmt: skip


def hostile_stream(sound: Sequence[bytes], noise: random.Random) -> bytes:
    """Returns one hostile stream; most have some thousand bytes at most."""
    kind = noise.random()
    if kind < 0.1:
        program = ATTACKS[noise.choice(_SHORT)]()
        return stream(program, noise.choice((2, 3, 4, 5)))
    if kind < 0.5:
        return _changed(noise.choice(sound), noise)
    program = b"".join(_instruction(noise) for _ in range(noise.choice((3, 8, 20, 60))))
    return (
        bytes([0x80, noise.choice((2, 3, 4, 5, 5, 4, 0, 1, 6, 255))])
        + program
        + (STOP if noise.random() < 0.9 else b"")
    )


# The long ones are tried once each, by tests/unit/lead_data/test_hostile_pickles.py.
_SHORT = tuple(
    attack for attack in ATTACKS if "00,000" not in attack and "million" not in attack and "one hash" not in attack
)


def _changed(sound: bytes, noise: random.Random) -> bytes:
    """Returns a stream that Python's pickler wrote with some of its instructions changed."""
    instructions = list(_instructions(sound))
    for _ in range(noise.choice((1, 1, 2, 4))):
        place, other = noise.randrange(1, len(instructions)), noise.randrange(1, len(instructions))
        change = noise.randrange(6)
        if change == 0:
            instructions[place] = _instruction(noise)
        elif change == 1:
            instructions.insert(place, _instruction(noise))
        elif change == 2:
            instructions[place] = instructions[other]
        elif change == 3:
            instructions[place:place] = instructions[other : other + noise.randrange(1, 8)]
        elif change == 4 and len(instructions) > 3:
            del instructions[place]
        else:
            instructions[place] = _other_value(instructions[place], noise)
    return b"".join(instructions)


@lru_cache(maxsize=64)
def _instructions(sound: bytes) -> tuple[bytes, ...]:
    places = [place for _, _, place in pickletools.genops(sound) if place is not None]
    return tuple(sound[begin:end] for begin, end in zip(places, [*places[1:], len(sound)], strict=True))


def _other_value(instruction: bytes, noise: random.Random) -> bytes:
    """Returns an instruction of the same kind with another argument."""
    if instruction[:1] in {b"\x8c", b"X", b"\x8d"}:
        return text(noise.choice((*CODES, *ORDERS, *(part for pair in (*NAMES, *ALLOWED) for part in pair))))
    if instruction[:1] in {b"K", b"M", b"J", b"\x8a"}:
        return integer(noise.choice(HUGE) * noise.choice((1, -1)))
    if len(instruction) > 1:
        return instruction[:1] + noise.randbytes(len(instruction) - 1)
    return _instruction(noise)


def _instruction(noise: random.Random) -> bytes:
    """Returns a few bytes that do something: one opcode, or the few that make a type, a call or a state."""
    return noise.choice(_WAYS)(noise)


def _type(noise: random.Random) -> bytes:
    return array_type(
        noise.choice(CODES), noise.choice(ORDERS), flags=noise.choice((0, 27, 63)),
        fields=noise.choice((NONE, NONE, DICT, many(text("a")))),
        subarray=noise.choice((NONE, NONE, many(NONE, many(integer(2))))),
    )  # fmt: skip


def _value(noise: random.Random) -> bytes:
    return noise.choice((
        NONE, b"\x88", b")", LIST, DICT, EMPTY_SET, integer(noise.choice(HUGE)), text(noise.choice((*CODES, *ORDERS))),
        small(noise.randbytes(noise.choice((0, 1, 8, 24)))), b"\x96" + struct.pack("<Q", 8) + bytes(8),
        b"G" + noise.randbytes(8), b"h" + bytes([noise.randrange(6)]), many(integer(noise.choice((0, 1, 2, 3, 2**62)))),
    ))  # fmt: skip


def _arguments(noise: random.Random) -> bytes:
    return many(
        *((_type if noise.random() < 0.3 else _value)(noise) for _ in range(noise.choice((0, 1, 2, 3, 4, 5, 6, 8))))
    )


def _call(noise: random.Random) -> bytes:
    """Calls a name, often with what it takes."""
    kind = noise.randrange(5)
    count = noise.choice((0, 1, 2, 3))
    content = small(noise.randbytes(count * noise.choice((1, 4, 8))))
    shape = many(*(integer(noise.choice((0, 1, 2, 3, -1, 2**62))) for _ in range(noise.randrange(4))))
    if kind == 0:
        return name(*noise.choice(ALLOWED[2:4])) + many(_type(noise), small(noise.randbytes(8))) + REDUCE
    if kind == 1:
        return (
            name(*noise.choice(ALLOWED[6:8])) + many(content, _type(noise), shape, text(noise.choice(ORDERS))) + REDUCE
        )
    if kind == 2:
        blank = (
            name(*noise.choice(ALLOWED[4:6])) + many(name("numpy", "ndarray"), many(integer(0)), small(b"b")) + REDUCE
        )
        state = many(
            integer(noise.choice((1, 1, 0, 2))), shape, _type(noise), noise.choice((b"\x88", b"\x89")), content
        )
        return blank + noise.choice((b"", MEMOIZE)) + state + BUILD
    return name(*noise.choice(ALLOWED if noise.random() < 0.7 else NAMES)) + _arguments(noise) + REDUCE


_WAYS: tuple[Callable[[random.Random], bytes], ...] = (
    _value, _value, _value, _call, _call, _type, _arguments,
    lambda noise: name(*noise.choice(NAMES)),
    lambda noise: name(*noise.choice(ALLOWED)),
    lambda noise: "c{}\n{}\n".format(*noise.choice(NAMES)).encode(),
    lambda noise: bytes([noise.randrange(256)]),
    lambda noise: noise.choice((MEMOIZE, b"q" + bytes([noise.randrange(4)]), b"h" + bytes([noise.randrange(8)]))),
    lambda noise: noise.choice((REDUCE, BUILD, b"a", b"e", b"s", b"u", b"t", b"\x90", b"\x91", MARK, b"0", b"1", b"2")),
    lambda noise: noise.choice((b"\x81", b"\x92", b"o", b"Q", b"\x97", b"\x98", b"\x82\x01", b"ios\nsystem\n", TUPLE1)),
    lambda noise: noise.choice((b"r", b"\x8b", b"\x84", b"T", b"B", b"X"))
    + struct.pack("<I", noise.choice(HUGE) % 2**32),
    lambda noise: noise.choice((b"\x95", b"\x8d", b"\x8e", b"\x96")) + struct.pack("<Q", noise.choice(HUGE)),
    lambda noise: laughs(noise.choice((3, 40))),
    lambda noise: noise.choice((LIST, NONE)) * 50 + noise.choice((b"a", TUPLE1)) * 49,
)  # fmt: skip


def written(value: object, protocol: int) -> bytes:
    """Returns the stream that Python's pickler writes."""
    return pickle.dumps(value, protocol=protocol)
