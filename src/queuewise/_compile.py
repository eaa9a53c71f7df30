"""The one place that knows numba: plain Python functions in, cached machine code out.

Policies, estimators and engines of this package are plain Python functions that call each other by name. Nothing is
decorated with ``njit`` where it is written. :func:`program` takes an entry function (an engine's loop) and the
functions of one policy, and compiles the whole call tree.

Why not ``njit(cache=True)`` in every file: numba notices an edit of the file that holds a cached function, but not an
edit of a helper in another file, and then silently returns old numbers. Here the name of the cache file is a
fingerprint of *everything that compilation freezes* (byte code and constants of every function reached, their
defaults, options and global values, and numba's version), so that an edit anywhere means another file.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import inspect
import os
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

#: Modules that compilation does not freeze beyond their version, or that never change under us.
_EXTERNAL = ("numpy", "math", "numba", "llvmlite", "scipy", "builtins")

#: How functions under a lean program are compiled: inlined into their callers, and without counting references to arrays.
#: Where every array is handed in by Python and none is made or kept, counting them changes nothing, yet in a loop that
#: passes named tuples of arrays from function to function it takes nine tenths of the time. A function that makes an array
#: does not compile like this; the caller then compiles the program as usual. Mark what is rarely called, and long, with
#: ``options(inline="never")``: inlining it costs compile time and gains nothing.
LEAN: dict[str, Any] = {"_nrt": False, "inline": "always"}

_compiled: dict[str, Any] = {}
_programs: dict[tuple[Any, ...], Any] = {}
_in_progress: list[int] = []


def options(**numba_options: Any) -> Callable[[F], F]:
    """Mark a plain function with the numba options for its compilation (``fastmath`` for one kernel, say)."""

    def mark(function: F) -> F:
        function.__numba_options__ = numba_options  # type: ignore[attr-defined]
        return function

    return mark


def replaced_when_compiled(function: F) -> F:
    """Mark a function for which numba has an overload: the plain version is for interpreted runs alone."""
    function.__numba_overloaded__ = True  # type: ignore[attr-defined]
    return function


def _is_external(module_name: str) -> bool:
    return module_name.split(".")[0] in _EXTERNAL


def _codes(code: types.CodeType) -> Iterable[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _referenced(function: types.FunctionType) -> dict[str, Any]:
    """The global values that the byte code reads, by name; what it reads from the user's own modules by dotted name."""
    found: dict[str, Any] = {}
    for code in _codes(function.__code__):
        value: Any = None
        dotted = ""
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                dotted = str(instruction.argval)
                if dotted not in function.__globals__:
                    dotted = ""
                    continue
                value = function.__globals__[dotted]
            elif dotted and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and _is_own_module(value):
                dotted += f".{instruction.argval}"
                value = getattr(value, str(instruction.argval), None)
            else:
                dotted = ""
                continue
            found[dotted] = value
    return found


def _is_own_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and not _is_external(value.__name__)


def _describe(value: Any, seen: set[int]) -> str:
    """A text that differs whenever the frozen meaning of a value differs, and is the same in every process."""
    inner = getattr(value, "_dispatcher", value)  # a function that the user compiled for whole arrays
    if hasattr(inner, "py_func"):  # or an ordinary compiled one: its options count beside its body
        chosen = sorted((key, repr(option)) for key, option in getattr(inner, "targetoptions", {}).items())
        return f"compiled {type(value).__name__} {chosen} {_describe(inner.py_func, seen)}"
    if isinstance(value, types.FunctionType):
        if _is_external(value.__module__ or ""):
            return f"external {value.__module__}.{value.__qualname__}"
        return _describe_function(value, seen)
    if isinstance(value, types.CodeType):
        constants = [_describe(constant, seen) for constant in value.co_consts]
        return f"{value.co_code.hex()}|{constants}|{value.co_names}|{value.co_varnames}|{value.co_argcount}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__} {getattr(value, '__version__', '')}"
    if isinstance(value, type):
        members = {name: member.value for name, member in getattr(value, "__members__", {}).items()}
        defaults = _describe({**members, **getattr(value, "_field_defaults", {})}, seen)
        return f"type {value.__module__}.{value.__qualname__} {getattr(value, '_fields', '')} {defaults}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name} {_describe(value.value, seen)}"
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.dtype} {value.shape} {digest}"
    if isinstance(value, tuple | list):
        return f"{type(value).__qualname__} {[_describe(item, seen) for item in value]}"
    if isinstance(value, dict):
        return f"dict {[(_describe(key, seen), _describe(item, seen)) for key, item in value.items()]}"
    if isinstance(value, set | frozenset):  # printed in an order that changes from process to process
        return f"set {sorted(_describe(item, seen) for item in value)}"
    return f"{type(value).__name__} {value!r}"


def _is_ours(function: types.FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] == __name__.split(".")[0]


def _describe_function(function: types.FunctionType, seen: set[int]) -> str:
    if id(function) in seen:  # recursion, or a function met before
        return f"again {function.__qualname__}"
    seen.add(id(function))
    marked = getattr(function, "__numba_options__", {})
    parts = [
        function.__qualname__,
        _describe(function.__code__, seen),
        _describe(function.__defaults__, seen),
        repr(sorted((key, _describe(value, seen)) for key, value in marked.items())),
    ]
    parts += [_describe(cell.cell_contents, seen) for cell in function.__closure__ or ()]
    parts += _layouts(function.__globals__, seen)
    for name, value in sorted(_referenced(function).items()):
        if isinstance(value, types.FunctionType) and _is_ours(value) and not _is_ours(function):
            parts.append(f"{name}={_library_fingerprint(value)}")
        else:
            parts.append(f"{name}={_describe(value, seen)}")
    return "\n".join(parts)


def _layouts(names: dict[str, Any], seen: set[int]) -> list[str]:
    """The named tuples among a function's globals. Byte code reads a field by name and machine code by place, and the cache
    finds a named tuple again by its module: so the same functions over fields in another order, or in a renamed file, are
    another program. (A class that takes part without being named in the function's module is not seen.)"""
    if id(names) in seen:
        return []
    seen.add(id(names))
    tuples = {name: value for name, value in names.items() if isinstance(value, type) and hasattr(value, "_fields")}
    return [f"{name} {_describe(value, seen)}" for name, value in sorted(tuples.items())]


@cache
def _library_fingerprint(function: Function) -> str:
    """The fingerprint of a function of this package, whose files nobody edits under a running process."""
    return fingerprint(function)


def fingerprint(*functions: Function) -> str:
    """Hexadecimal digest of everything that compiling these functions would freeze."""
    seen: set[int] = set()
    text = [f"python {sys.version_info[:3]} numba {numba.__version__} numpy {np.__version__}"]
    text += [_describe(function, seen) for function in functions]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:24]


def cache_folder() -> Path:
    """Where compiled code is kept: ``QUEUEWISE_CACHE``, else the user's cache folder, else a temporary one."""
    chosen = os.environ.get("QUEUEWISE_CACHE")
    if chosen:
        folder = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
        folder = Path(base) / "queuewise"
    folder = folder / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"queuewise-kernels-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _is_compiled_by_us(value: Any) -> bool:
    return (
        isinstance(value, types.FunctionType)
        and not _is_external(value.__module__ or "")
        and not getattr(value, "__numba_overloaded__", False)
    )


def _with_globals(
    function: types.FunctionType, replaced: Mapping[str, Any], name: str | None = None, filename: str | None = None
) -> types.FunctionType:
    """The same byte code over other globals. A name that carries the fingerprint keeps two versions of one function
    apart among the machine-code symbols of a process."""
    code = function.__code__
    if name is not None:
        code = code.replace(co_name=name, co_qualname=name)
    if filename is not None:
        code = code.replace(co_filename=filename)
    names = {**function.__globals__, **replaced}
    clone = types.FunctionType(code, names, name or function.__name__, function.__defaults__, function.__closure__)
    # numba names a recursive call after the module, which a function from a bare ``exec`` does not have.
    clone.__module__ = function.__module__ if function.__module__ in sys.modules else __name__
    clone.__qualname__ = name or function.__qualname__
    clone.__bound__ = True  # type: ignore[attr-defined]
    return clone


def _put(replaced: dict[str, Any], module: types.ModuleType, name: str, path: list[str], compiled: Any) -> None:
    """Let a copy of `module` with the attribute at `path` compiled stand in for it: numba reads ``module.function``."""
    copy = replaced.get(name)
    if copy is None or copy is module:
        copy = replaced[name] = types.ModuleType(module.__name__)
        copy.__dict__.update(module.__dict__)
    if len(path) == 1:
        setattr(copy, path[0], compiled)
    else:
        _put(copy.__dict__, getattr(module, path[0]), path[0], path[1:], compiled)


def jit(
    function: Function,
    bindings: Mapping[str, Function] | None = None,
    cache_file: str | None = None,
    *,
    lean: bool = False,
    entry: bool = False,
) -> Any:
    """Compile a plain function and, under it, every plain function that it calls by a global name.

    `bindings` replaces globals of `function` itself (an engine's placeholders by one policy's functions).
    Already compiled functions are taken as they are. The result is kept for the life of the process. `lean` : see :data:`LEAN`;
    the `entry` itself is not inlined into anything.
    """
    if hasattr(function, "py_func"):
        return function
    assert isinstance(function, types.FunctionType)
    bindings = bindings or {}
    key = fingerprint(function, *bindings.values()) + ("_lean" if lean else "") + ("_entry" if lean and entry else "")
    if key in _compiled:
        return _compiled[key]
    _in_progress.append(id(function))
    try:
        replaced = _compiled_callees(function, bindings, lean)
    finally:
        _in_progress.pop()
    clone = _with_globals(function, replaced, f"{function.__name__}_{key[:10]}{key[24:]}", cache_file)
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    if lean:
        settings |= {"_nrt": False} if entry else LEAN
    settings |= getattr(function, "__numba_options__", {})
    compiled = numba.njit(cache=cache_file is not None, **settings)(clone)
    for name, value in _referenced(function).items():
        if value is function:
            clone.__globals__[name] = compiled
    _compiled[key] = compiled
    return compiled


def _compiled_callees(function: types.FunctionType, bindings: Mapping[str, Function], lean: bool) -> dict[str, Any]:
    """The globals of a function that compiling it replaces: every plain function that it calls, and the bindings."""
    replaced: dict[str, Any] = {name: jit(bound, lean=lean) for name, bound in bindings.items()}
    for name, value in _referenced(function).items():
        first, *path = name.split(".")
        if first in bindings or not _is_compiled_by_us(value):
            continue
        if value is function or id(value) in _in_progress:
            continue  # a function that calls itself is put in by the caller; mutual recursion is for numba to refuse
        if not path:
            replaced[name] = jit(value, lean=lean)
        else:
            _put(replaced, function.__globals__[first], first, path, jit(value, lean=lean))
    return replaced


def interpreted(function: Function, bindings: Mapping[str, Function]) -> Function:
    """The same entry function as plain Python, with one policy's functions bound to its placeholders."""
    assert isinstance(function, types.FunctionType)
    return _with_globals(function, dict(bindings))


def program(entry: Function, bindings: Mapping[str, Function], *, lean: bool = False) -> Any:
    """Compile `entry` with `bindings` and keep the machine code on disk, under a name that no edit can outlive.

    In a process, functions of this package are known by identity, a user's by their fingerprint: a notebook's cell can
    redefine a constant or a helper under a rule that stays the same object. `lean` : see :data:`LEAN`.
    """
    known = (bound if _is_plain_library(bound) else fingerprint(bound) for bound in bindings.values())
    same = (entry, lean, *bindings, *known)
    if same not in _programs:
        _programs[same] = _program(entry, bindings, lean)
    return _programs[same]


def _is_plain_library(function: Function) -> bool:
    return isinstance(function, types.FunctionType) and _is_ours(function) and not hasattr(function, "__bound__")


def calls_compiled(functions: Iterable[Function]) -> bool:
    """Whether the user's functions reach one that the user compiled. It is taken as it is, so it may make arrays, and a lean
    program around it would never release them."""
    return any(_calls_compiled(function, set()) for function in functions if not _is_plain_library(function))


def _calls_compiled(function: Any, seen: set[int]) -> bool:
    if hasattr(getattr(function, "_dispatcher", function), "py_func"):
        return True
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    return any(_calls_compiled(value, seen) for value in _referenced(function).values())


def _program(entry: Function, bindings: Mapping[str, Function], lean: bool) -> Any:
    key = fingerprint(entry, *bindings.values()) + ("_lean" if lean else "")
    cacheable = all(_importable(bound) for bound in bindings.values())
    stub: Path | None = None
    if cacheable:
        stub = cache_folder() / f"{entry.__module__.rsplit('.', 1)[-1]}_{key}.py"
        if not stub.exists():  # numba wants a file beside its cache and stamps it, so it is written once, atomically
            handle, temporary = tempfile.mkstemp(dir=stub.parent)
            with os.fdopen(handle, "w") as file:
                file.write(f"# Machine code of {entry.__module__}.{entry.__name__} for the policy functions\n")
                file.writelines(f"#   {name} = {f.__module__}.{f.__qualname__}\n" for name, f in bindings.items())
            os.utime(temporary, (0, 0))  # two processes that race write stubs with the same stamp
            os.replace(temporary, stub)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", numba.NumbaPerformanceWarning)
        return jit(entry, bindings, None if stub is None else str(stub), lean=lean, entry=True)


def _importable(function: Function) -> bool:
    """Whether another process can find the function's module: the cache stores its named tuples by reference."""
    module = inspect.getmodule(function)
    return module is not None and module.__name__ != "__main__" and hasattr(module, "__file__")


def compile_for(entry: Any, arguments: tuple[Any, ...]) -> None:
    """Compile an entry for these arguments if it has not been compiled yet, so that what numba raises while it compiles
    (not always an error of its own kind) is told from what the program raises while it runs."""
    if not entry.signatures:
        entry.compile(tuple(numba.typeof(argument) for argument in arguments))  # type: ignore[no-untyped-call]


def direct(entry: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """The machine code of an entry for arguments of just these types, without the look at the types of every call, which takes
    longer than a decision. Handing anything else to it is not noticed, so it is for callers that own their arrays."""
    signature = tuple(numba.typeof(argument) for argument in arguments)  # type: ignore[no-untyped-call]
    if signature not in entry.overloads:
        entry.compile(signature)
    return entry.overloads[signature].entry_point  # type: ignore[no-any-return]


def reason(error: Exception) -> str:
    """The first line of numba's error that says what it refused."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Failed in")), type(error).__name__)
