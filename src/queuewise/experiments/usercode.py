"""Rules and systems from Python files of the user's own, named in an experiment's file as ``mine.py:shortest``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

#: Put before a file's own name, so that ``random.py`` does not stand in for Python's own module.
_PREFIX = "user_"


def names_file(text: str) -> bool:
    """Whether a text names something in a Python file rather than something registered."""
    return text.partition(":")[0].endswith(".py")


def load(text: str, folder: Path) -> Any:
    """What ``file.py:name`` names, the path relative to `folder`. The file is run, as Python runs any import.

    Its module is called ``user_file`` whatever folder it is in, so that machines which keep it elsewhere make the same results.

    Raises
    ------
    ValueError : no such file or name, an error while it ran, or another file of that name in this process.
    """
    file, _, name = text.partition(":")
    if not name:
        raise ValueError(f"{text!r} must say what is meant in the file, as in {file + ':name'!r}")
    path = (folder / file).resolve()
    if not path.is_file():
        raise ValueError(f"{str(folder / file)!r} is no file")
    module = _module(path)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            own = [key for key in public if getattr(vars(module)[key], "__module__", None) == module.__name__]
            raise ValueError(f"{file} has no {name!r}; it has {', '.join(own) or 'nothing to call'}")
        found = getattr(found, part)
    return found


def call(text: str, function: Any, arguments: dict[str, Any]) -> Any:
    """Call what was loaded. Raises ValueError for arguments that it does not take, and for whatever it raises itself."""
    if not callable(function):
        raise ValueError(f"{text} is no function")
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{text}: {error}") from error
    except ValueError:  # some callables have no signature to look at
        pass
    try:
        return function(**arguments)
    except ValueError:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(f"{text}: {type(error).__name__}: {error}") from error


def _module(path: Path) -> Any:
    name = _PREFIX + path.stem
    known = sys.modules.get(name)
    if known is not None:
        if Path(str(known.__file__)).resolve() == path:
            return known
        raise ValueError(f"two files are called {path.name!r} ({known.__file__} and {path}); rename one of them")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # its neighbours can be imported, as by a script
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):  # a script that ends with sys.exit() must not end this process
            raise ValueError(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def blame(error: BaseException) -> str:
    """Where in a file of the user's own an error was raised, and what it says: one line, for an error while a rule is used.

    "" where no file of the user's own had to do with it.
    """
    places = [
        (frame.f_globals.get("__name__", ""), line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [place for place in places if place[0].startswith(_PREFIX) and place[0] in sys.modules]
    if not own:
        return ""
    module, line, function = own[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{Path(str(sys.modules[module].__file__)).name}, line {line}, in {function}: {said}"


def is_own(thing: Any) -> bool:
    """Whether a function or a class came from a file that :func:`load` has read."""
    return str(getattr(thing, "__module__", "")).startswith(_PREFIX)
