"""Networks on the CPU are native code of this host."""

from targets.native_executable import NativeExecutable

EXECUTABLE = NativeExecutable
