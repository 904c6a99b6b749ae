"""Starts the .NET runtime of the installed package, without a .NET SDK on the machine.

The package is a self-contained program, which the usual host refuses to load as a library. So this file
calls `libcoreclr` itself: initialise the runtime with the package's assemblies, then create delegates.
"""

import ctypes
from pathlib import Path

import pythonnet
from clr_loader.types import Runtime, RuntimeInfo

PYTHON_RUNTIME = Path(pythonnet.__file__).parent / "runtime" / "Python.Runtime.dll"


class PackagedRuntime(Runtime):
    """A runtime made of the files in one folder."""

    def __init__(self, folder):
        assemblies = [*folder.glob("*.dll"), PYTHON_RUNTIME]
        properties = {
            "TRUSTED_PLATFORM_ASSEMBLIES": ":".join(map(str, assemblies)),
            "NATIVE_DLL_SEARCH_DIRECTORIES": f"{folder}/",
            "APP_PATHS": str(folder),
            # The machine may have no ICU library.
            "System.Globalization.Invariant": "true",
        }
        count = len(properties)
        names = (ctypes.c_char_p * count)(*[name.encode() for name in properties])
        values = (ctypes.c_char_p * count)(*[value.encode() for value in properties.values()])
        self._library = ctypes.CDLL(str(folder / "libcoreclr.so"))
        self._host, self._domain = ctypes.c_void_p(), ctypes.c_uint()
        result = self._library.coreclr_initialize(
            str(folder / "headwater").encode(),
            b"headwater",
            count,
            names,
            values,
            ctypes.byref(self._host),
            ctypes.byref(self._domain),
        )
        assert result == 0, f"the .NET runtime did not start: {result & 0xFFFFFFFF:#x}"

    def _get_callable(self, assembly_path, typename, function):
        pointer = ctypes.c_void_p()
        result = self._library.coreclr_create_delegate(
            self._host,
            self._domain,
            Path(assembly_path).stem.encode(),
            typename.encode(),
            function.encode(),
            ctypes.byref(pointer),
        )
        assert result == 0, f"{typename}.{function} is not there: {result & 0xFFFFFFFF:#x}"
        entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(pointer.value)

        def call(buffer, size):
            # The caller passes a buffer of cffi.
            import cffi

            return entry(int(cffi.FFI().cast("uintptr_t", buffer)), size)

        return call

    def info(self):
        return RuntimeInfo(kind="CoreCLR", version="", initialized=True, shutdown=False, properties={})

    def shutdown(self):
        """The runtime ends with the process."""


def start(folder):
    """Starts the runtime and loads the SDK; its namespaces can be imported afterwards."""
    pythonnet.set_runtime(PackagedRuntime(folder))
    pythonnet.load()
    import clr

    for assembly in ("Microsoft.Azure.Cosmos.Client", "Newtonsoft.Json"):
        clr.AddReference(assembly)
