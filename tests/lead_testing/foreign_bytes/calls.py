"""Which functions call a reader of bytes: a scan of the syntax trees of operator and trainer.

Names are followed through a module's imports, so `import numpy as np` and `from json import loads` are seen as what
they are. A reader that is new to the project is added to `READERS` by whoever brings its library.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

READERS = frozenset(
    {
        "pickle.load", "pickle.loads", "pickle.Unpickler", "pickle._Unpickler", "marshal.load", "marshal.loads",
        "shelve.open", "numpy.load", "numpy.fromfile", "numpy.frombuffer", "numpy.memmap", "numpy.loadtxt",
        "numpy.genfromtxt", "numpy.lib.format.read_array", "torch.load", "torch.frombuffer", "torch.jit.load",
        "torch.hub.load", "torch.package.PackageImporter", "safetensors.safe_open", "safetensors.torch.load",
        "safetensors.torch.load_file", "json.load", "json.loads", "json.JSONDecoder", "orjson.loads", "yaml.load",
        "yaml.load_all",
        "yaml.safe_load", "yaml.safe_load_all", "tomllib.load", "tomllib.loads", "csv.reader", "csv.DictReader",
        "configparser.ConfigParser", "cv2.imdecode", "cv2.imread", "cv2.VideoCapture", "PIL.Image.open",
        "simplejpeg.decode_jpeg", "simplejpeg.decode_jpeg_header", "laspy.read", "laspy.open", "lzma.open",
        "lzma.decompress", "lzma.LZMAFile", "gzip.open", "gzip.decompress", "gzip.GzipFile",
        "zlib.decompress", "zlib.decompressobj", "bz2.open", "bz2.decompress", "zipfile.ZipFile", "tarfile.open",
        "shutil.unpack_archive", "lz4.block.decompress", "lz4.frame.decompress", "lz4.frame.open",
        "zstandard.ZstdDecompressor",
        "pyarrow.parquet.read_table", "pyarrow.parquet.ParquetFile", "pyarrow.parquet.read_schema",
        "pyarrow.parquet.read_metadata",
        "pyarrow.ipc.open_file",
        "pyarrow.ipc.open_stream", "pyarrow.memory_map", "pyarrow.BufferReader", "pyarrow.feather.read_table",
        "pandas.read_parquet", "pandas.read_csv", "pandas.read_pickle", "xml.etree.ElementTree.fromstring",
        "xml.etree.ElementTree.parse", "xml.etree.ElementTree.XML", "xml.etree.ElementTree.iterparse",
        "diskcache.Cache",
        "sqlite3.connect", "struct.unpack", "struct.unpack_from", "struct.iter_unpack", "av.open", "imageio.imread",
        "msgpack.unpackb", "msgpack.unpack", "h5py.File", "onnx.load", "ast.literal_eval", "dill.load", "dill.loads",
        "cloudpickle.load", "cloudpickle.loads", "joblib.load", "torch.serialization.load", "cv2.imreadmulti",
        "cv2.imdecodemulti", "cv2.FileStorage", "lzma.LZMADecompressor", "xml.dom.minidom.parseString",
        "xml.sax.parseString", "lxml.etree.fromstring", "tomli.loads", "scipy.io.loadmat",
        "lazrs.decompress_points", "lazrs.LasZipDecompressor", "turbojpeg.TurboJPEG", "blosc.decompress",
        "snappy.decompress", "brotli.decompress", "lz4.frame.LZ4FrameDecompressor", "zstandard.decompress",
    }
)  # fmt: skip
METHODS = frozenset({"model_validate_json", "validate_json", "unpack_from", "iter_unpack"})  # of any object


def calls_in(root: Path, packages: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Returns the readers that each function or method uses, by `path::name` with the path below `root`."""
    found: dict[str, set[str]] = {}
    for package in packages:
        for file in sorted((root / package).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            imported = dict(_imports(tree))
            for function, node in _nodes(tree, ""):
                if name := _reader(node, imported):
                    found.setdefault(f"{file.relative_to(root)}::{function or 'module'}", set()).add(name)
    return {at: frozenset(names) for at, names in sorted(found.items())}


def _nodes(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yields every node with the function or method that it belongs to."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{function}.{node.name}".lstrip(".")
        else:
            inside = function
            yield function, node
        yield from _nodes(node, inside)


def _reader(node: ast.AST, imported: dict[str, str]) -> str:
    """Returns the reader that a node names, else nothing."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_struct(node.func):
        return f"struct.Struct.{node.func.attr}"
    if isinstance(node, ast.Attribute) and node.attr in METHODS:
        return f".{node.attr}"
    if isinstance(node, ast.Attribute | ast.Name) and (name := _dotted(node, imported)) in READERS:
        return name
    return ""


def _is_struct(function: ast.Attribute) -> bool:
    """A compiled struct is an object of some name in capitals."""
    return function.attr == "unpack" and isinstance(function.value, ast.Name) and function.value.id.isupper()


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr, imported: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value, imported)
        return f"{before}.{node.attr}" if before else ""
    return ""
