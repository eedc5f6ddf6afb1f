"""Names of your own: ``FILE.py:NAME`` or ``package.module:NAME`` in place of a table's name.

A ``Table`` holds the package's entries by name, and finds what such a reference names: whoever
takes a name of a table takes both. The file or module runs once in a process. A file becomes a
submodule of this module, called after its path, so that other processes can unpickle its classes.
Checked by: tests/training/test_own_names.py.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from hashlib import sha256
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import CodeType, ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
__path__: list[str] = []  # the files that run here are submodules

TRUST = (
    "run the code (FILE.py:NAME) that the folder or the TOML file names, even if it has changed "
    "since, or you have never trained with it; read it first"
)
"""The help of the flag --trust."""
_REFERENCE = re.compile(r"(.+?\.py|[A-Za-z_]\w*(?:\.\w+)+):([A-Za-z_]\w*)(?=:|$)")
DATA = (".npz", ".csv", ".tsv", ".txt")
"""The ends of the names of data files, which stand in the place of a task's name."""
_DIGESTS: dict[str, str] = {}
"""The digests of the files that ran, by their paths."""


def reference(text: object) -> tuple[str, str] | None:
    """The file or module of a reference, options allowed behind it, and the name there; None for
    any other text.

    >>> reference("mine.py:Majority:length=60"), reference("svd:margin=0.1")
    (('mine.py', 'Majority'), None)
    """
    match = _REFERENCE.match(text) if isinstance(text, str) else None
    return (match[1], match[2]) if match else None


def _home(text: Any) -> str:
    """The file or the module that a spec names; "" if it has a table's name."""
    if home := reference(text):
        return home[0]
    name = text.partition(":")[0] if isinstance(text, str) else ""
    return name if name.lower().endswith(DATA) else ""


def absolute(text: Any, folder: Path | str = "") -> Any:
    """A spec with the path of its file, relative to ``folder``, made absolute; all else as it is.

    >>> absolute("mine.py:Majority:length=60", "/home/me")
    '/home/me/mine.py:Majority:length=60'
    """
    if not isinstance(text, str) or "." not in text:  # most settings: in no time
        return text
    home = _home(text)
    if not home.lower().endswith((".py", *DATA)):
        return text
    return os.path.abspath(os.path.join(folder, os.path.expanduser(home))) + text[len(home) :]


def short(text: str) -> str:
    """A spec without the folder of its file.

    >>> short("/home/me/mine.py:Majority:length=60"), short("copy")
    ('mine.py:Majority:length=60', 'copy')
    """
    home = _home(text)
    return os.path.basename(home) + text[len(home) :]


def label(text: str) -> str:
    """The name in a spec, without a file or options.

    >>> label("mine.py:Majority:length=60"), label("svd:margin=1"), label("/home/me/a.csv:id=n")
    ('Majority', 'svd', 'a')
    """
    home = _home(text)
    if home.lower().endswith(DATA):
        return Path(home).stem
    return (reference(text) or ("", text.partition(":")[0].strip()))[1]


def source(home: str) -> Path:
    """The file of a reference's first part. Nothing runs. Raises ValueError if there is none."""
    if home.endswith(".py"):
        path = Path(os.path.realpath(home))
        if not path.is_file():
            raise ValueError(
                f"there is no file {home}; name an existing one, such as ./mine.py:NAME (the path "
                "counts from the working directory, in a TOML file from its folder)"
            )
        return path
    spec, parts, places = None, home.split("."), None
    for n in range(len(parts)):  # find_spec alone would run the packages
        name = ".".join(parts[: n + 1])
        finders = (finder.find_spec(name, places) for finder in sys.meta_path)
        spec = next((each for each in finders if each), None)
        places = list(spec.submodule_search_locations or ()) if spec else []
    if spec is None or not spec.has_location or not spec.origin:
        raise ValueError(
            f"there is no module {home} with a source file; need one that is installed or in a "
            "folder of PYTHONPATH, or name a file: FILE.py:NAME"
        )
    return Path(spec.origin)


class _Loader(SourceFileLoader):
    """Compiles the source itself: a file of bytecode is told from an old one by its time alone."""

    def get_code(self, fullname: str) -> CodeType:
        data = self.get_data(self.path)
        _DIGESTS[self.path] = sha256(data).hexdigest()
        return self.source_to_code(data, self.path)


class _Finder(MetaPathFinder):
    """Finds the submodules of this module: the files whose paths their names hold."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        if parent != __name__:
            return None
        place = os.fsdecode(bytes.fromhex(name.rpartition("_")[2]))
        return spec_from_file_location(fullname, place, loader=_Loader(fullname, place))


sys.meta_path.append(_Finder())


def _run(home: str) -> ModuleType:
    """The module of a file or of a module's name. Raises ValueError, with the line, if it fails."""
    path, name = source(home), home
    if home.endswith(".py"):
        name = f"{__name__}.{path.stem.replace('.', '_')}_{os.fsencode(path).hex()}"
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        frames = extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise ValueError(
            f"{path}{where}: {type(error).__name__}: {error}; repair the file, which has to run by "
            "itself"
        ) from error


def digest(home: str) -> str:
    """The SHA-256 of the file of a reference's first part, which does not run. Raises ValueError
    if this process ran the file as it was before."""
    path = source(home)
    now = sha256(path.read_bytes()).hexdigest()
    if _DIGESTS.get(str(path), now) != now:
        raise ValueError(
            f"{path} has changed since this process ran it; start Python (or the notebook's "
            "kernel) again"
        )
    return now


def find(text: str) -> Any:
    """What a reference names. Raises ValueError if there is no such file, module or name, or if
    the file raises."""
    home, name = reference(text) or ("", "")
    module = _run(home)
    if not hasattr(module, name):
        names = [key for key in vars(module) if key[:1] != "_"]
        near = get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{source(home)} has no {name}{hint}; define it there")
    return getattr(module, name)


def name_of(value: type) -> str:
    """The reference to a class.

    >>> name_of(Table)
    'refnet.common.names:Table'
    """
    home = value.__module__
    if home.startswith(f"{__name__}."):
        home = os.fsdecode(bytes.fromhex(home.rpartition("_")[2]))
    return f"{home}:{value.__qualname__}"


def lacking(value: object, needs: tuple[str, ...], base: type = object) -> list[str]:
    """Those of the names ``needs`` that a value has not, or has only as ``base`` declares them.

    >>> lacking({}, ("keys", "shape"))
    ['shape']
    """
    declared = getattr(value, "__dataclass_fields__", ())
    return [
        name
        for name in needs
        if name not in declared
        and (not hasattr(value, name) or getattr(value, name) is vars(base).get(name, value))
    ]


class Table(dict[str, T]):
    """Entries by name, and those that references name.

    ``what``: a kind of entry, such as "cell". ``lacks(value)``: what a value lacks for being one.
    ``name in table`` and ``table[name]`` run the file or module of a reference, and raise
    ValueError if that fails or if the value lacks something; iteration gives the package's names.
    """

    def __init__(
        self, what: str, entries: Mapping[str, T], lacks: Callable[[object], list[str]]
    ) -> None:
        super().__init__(entries)
        self.what, self.lacks = what, lacks

    def __missing__(self, name: str) -> T:
        if reference(name) is None:
            raise KeyError(name)
        value: T = find(name)
        if lacks := self.lacks(value):
            raise ValueError(
                f"{self.what} {name} lacks {', '.join(lacks)}; python -m refnet new {self.what} "
                "prints an example that has everything"
            )
        return value

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            reference(name) is not None and self[str(name)] is not None
        )
