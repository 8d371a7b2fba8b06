"""A raw dataset's pickles run no code, crash nothing and take neither all memory nor all time, whatever they hold."""

import gzip
import lzma
import pickle
import resource
import subprocess
import sys
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from lead_testing import PROJECT_ROOT, shared_dir
from lead_testing.hostile_child import in_child
from lead_testing.hostile_pickles import ATTACKS, stream
from lead_testing.hostile_raw_files import walked
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import plain_value, read_plain
from lead_trainer.recipes.lead.ingest.torch_pickle import read_gzip_pickle

INPUTS = 5_000  # the campaign's goal R14 draws on
LONGEST_S = 10.0  # of CPU on a crowded machine; what it tells apart is hours
CANARY = """
import sys, lzma, gzip
from lead_testing.hostile_pickles import object_at, object_array, stream, REDUCE
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.ingest.torch_pickle import read_gzip_pickle
def canary():
    print("CODE RAN", flush=True)
    return 1
programs = {
    "a call": lambda core: object_at(id(canary), core) + b")" + REDUCE,
    "an object": lambda core: object_at(id(canary), core),
    "an array of objects": lambda core: object_array(id(canary)),
}
for core in ("numpy.core.multiarray", "numpy._core.multiarray"):
    data = stream(programs[sys.argv[1]](core))
    for read, packed in ((read_plain, lzma.compress(data)), (read_gzip_pickle, gzip.compress(data))):
        try:
            print("TAKEN", type(read(packed, "metas/0001.pkl")), flush=True)
        except BadData as error:
            print("REFUSED", error, flush=True)
"""


@pytest.mark.parametrize("program", ["a call", "an object", "an array of objects"])
def test_a_type_of_objects_makes_no_object_of_bytes(program: str) -> None:
    """A file that names numpy's dtype and scalar alone reaches the Python object at an address, and calls it.

    Audit: B1
    Audit: S10
    """
    done = subprocess.run(
        [sys.executable, "-c", CANARY, program], cwd=PROJECT_ROOT, env={"PYTHONPATH": str(PROJECT_ROOT / "tests")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"the process crashed: {done.stderr[-2000:]}"
    assert "CODE RAN" not in done.stdout and "TAKEN" not in done.stdout, done.stdout
    assert done.stdout.count("REFUSED file metas/0001.pkl") == 4, done.stdout + done.stderr


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_each_known_attack_is_refused_by_name_within_seconds_and_memory(attack: str) -> None:
    """Memo bombs, endless hashes and walks, deep nests, huge lengths, calls and states: BadData that names the file.

    Audit: B1
    Audit: S10
    Audit: S11
    """
    data, held = stream(ATTACKS[attack]()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read, packed in ((read_plain, lzma.compress(data, preset=0)), (read_gzip_pickle, gzip.compress(data))):
        begin = time.thread_time()
        with pytest.raises(BadData, match=r"file metas/0001\.pkl is not a valid .* pickle"):
            read(packed, "metas/0001.pkl")
        assert time.thread_time() - begin < LONGEST_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 1 << 20, "more than 1 GiB (in KiB) was taken"


@pytest.mark.parametrize("name", ["pickle", "pickle of tensors"])
def test_streams_of_opcodes_are_refused_or_are_plain_data(name: str) -> None:
    """Streams drawn by structure, in a process with an audit hook: no open, import, exec, call, crash or hang.

    Audit: B1
    Audit: S10
    """
    assert in_child(name, range(INPUTS)) == []


@pytest.mark.parametrize("name", ["xz pickle", "gzip pickle"])
def test_spoiled_containers_of_pickles_are_bad_data(name: str) -> None:
    """Audit: S10"""
    assert in_child(name, range(INPUTS // 5)) == []


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("core", ["numpy._core", "numpy.core"])
def test_what_numpy_and_torch_write_comes_back_to_the_bit(protocol: int, core: str) -> None:
    numbers = [np.dtype(code) for code in ("?", "i1", "<u2", ">i4", "i8", "f2", "<f4", ">f8", "c8", "c16", "S4")]
    arrays = [
        np.frombuffer(np.random.default_rng(1).integers(0, 2, 24 * kind.itemsize, np.uint8).tobytes(), kind)
        for kind in numbers
    ] + [np.array([*"abcdefghijklmnopqrstuvw", "aé\U0001f697"])]
    arrays += [array.reshape(2, 3, 4) for array in arrays] + [np.asfortranarray(a.reshape(4, 6)) for a in arrays]
    scalars = [array[5] for array in arrays[: len(numbers) + 1]] + [np.float32("nan"), np.float64("-inf")]
    others = [np.zeros((0, 3), "f4"), np.array(2.5), {1, 2}, frozenset("a"), 1j, OrderedDict(b=1), b"\xff", (), [None]]
    value = {"arrays": arrays, "scalars": scalars, "others": others, "long": list(range(300)), "deep": [[[[{}]]]]}
    data = pickle.dumps(value, protocol=protocol)
    if core == "numpy.core" and protocol < 4:  # where a name ends with its line, another length changes nothing else
        data = data.replace(b"numpy._core", b"numpy.core")
    assert_same(plain_value(data), {**value, "others": [dict(o) if isinstance(o, dict) else o for o in others]})
    whole = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    tensors = {"whole": whole, "view": whole[1:, ::2, 1:3], "turned": whole.permute(2, 0, 1), "one": torch.tensor(7)}
    found = read_gzip_pickle(gzip.compress(pickle.dumps(tensors, protocol=protocol)), "t.gz")
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())
        assert found[name].dtype == tensor.numpy().dtype


def test_every_file_of_the_reference_tree_is_what_pickle_itself_makes_of_it() -> None:
    files = sorted((shared_dir() / "golden/lead_data/carla_leaderboard2").rglob("*.pkl"))
    assert len(files) > 300
    for file in files:
        data = file.read_bytes()
        assert_same(read_plain(data, file.name), pickle.loads(lzma.decompress(data)))


def test_lists_of_numbers_come_back_wherever_they_stand() -> None:
    """Short lists are read at once; what is beside them, or ends the stream, is read one by one."""
    three, four, ints = [1.0, -0.0, 2.5], [0.0, 1.0, 2.0, 3.0], [1, 2, 255]
    lists = [three, four, ints, [7], [300], [1, 256], [], [True], [2.0], [3.0, 4.0], list(range(20)), [0.5] * 20]
    lists += [[three], [four], [three, [*three]], [three, four], [[*four], four], [three] * 3, [ints, ints], [[7], [8]]]
    lists += [[three, ints], [three, 1.0], [1.0, three], [7, three], [three, []], [[], three], [[three], [four]]]
    same = {"lists": lists, "again": lists[:3], "last": [[1], [1, 2, 300], [2.0]]}
    for value in (*lists, *([one, other] for one in lists for other in lists), lists, same):
        for protocol in (2, 3, 4, 5):
            data = pickle.dumps(value, protocol=protocol)
            assert plain_value(data) == value
            assert pickle.dumps(plain_value(data), protocol=protocol) == data, "what is shared is shared"


def test_a_value_may_be_shared_but_not_without_end() -> None:
    row = [1.0, 2.0]
    assert plain_value(pickle.dumps([row, row])) == [row, row]
    shared: list[Any] = []
    for _ in range(12):
        shared = [shared, shared]
    assert walked(plain_value(pickle.dumps(shared))) == 2**13 - 1
    for _ in range(20):
        shared = [shared, shared]
    with pytest.raises(ValueError, match="counted as often as they are met"):
        plain_value(pickle.dumps(shared))


def test_storage_of_a_tensor_is_read_within_its_bounds() -> None:
    """Sizes, offsets and strides that lead out of a tensor's storage are refused.

    Audit: B1
    """
    data = pickle.dumps({"a": torch.arange(12.0).reshape(3, 4)}, protocol=2)
    place = data.index(b"K\x03K\x04\x86")
    assert read_gzip_pickle(gzip.compress(data), "t.gz")["a"].shape == (3, 4)
    for wrong in (b"K\x04K\x04\x86", b"K\xffK\xff\x86", b"K\x03K\x05\x86"):
        changed = data[:place] + wrong + data[place + 5 :]
        with pytest.raises(BadData, match="does not lie in its storage"):
            read_gzip_pickle(gzip.compress(changed), "t.gz")


def assert_same(found: Any, expected: Any) -> None:
    """Asserts that two values have the same types, order and bytes."""
    waiting = [(found, expected)]
    while waiting:
        one, other = waiting.pop()
        assert type(one) is type(other)
        if isinstance(other, dict):
            assert list(one) == list(other)
            waiting += zip(one.values(), other.values(), strict=True)
        elif isinstance(other, (list, tuple)):
            waiting += zip(one, other, strict=True)
        elif isinstance(other, (np.ndarray, np.generic)):
            assert (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
            assert one.dtype.byteorder == other.dtype.byteorder and one.flags.f_contiguous == other.flags.f_contiguous
        else:
            assert one == other or (one != one and other != other)
