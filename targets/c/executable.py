"""Networks in C are run by the shared object that is compiled of them here."""

from targets.native_executable import NativeExecutable

EXECUTABLE = NativeExecutable
