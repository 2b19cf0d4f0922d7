#!/usr/bin/env bash
# Guess: LLVM's fptrunc from float to bfloat gives the same bits on every processor.
# Case: with AVX512_BF16 it is one instruction that flushes subnormal numbers to zero. Without, they are rounded:
# bfloat has float's exponents, so it has subnormal numbers, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 ml_dtypes==0.6.0 llvmlite==0.50.0
"$folder/env/bin/python" - <<'EOF'
import ctypes

import llvmlite
import llvmlite.binding as llvm
import ml_dtypes
import numpy

print("llvmlite", llvmlite.__version__, "LLVM", llvm.llvm_version_info, llvm.get_host_cpu_name())
features = llvm.get_host_cpu_features()
if not features.get("avx512bf16"):
    raise SystemExit("left out: this processor lacks AVX512_BF16")
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
source = """
define void @f(ptr %x, ptr %y) {
  %a = load <16 x float>, ptr %x, align 4
  %b = fptrunc <16 x float> %a to <16 x bfloat>
  store <16 x bfloat> %b, ptr %y, align 2
  ret void
}
"""
machine = llvm.Target.from_default_triple().create_target_machine(
    cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=3
)
engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source), machine)
engine.finalize_object()
x = numpy.resize(numpy.array([1e-39, -5e-39, 2e-38, 1.0], numpy.float32), 16)
y = numpy.zeros(16, ml_dtypes.bfloat16)
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))(x.ctypes.data, y.ctypes.data)
print("numbers", x[:4], "by fptrunc", y[:4], "rounded", x.astype(ml_dtypes.bfloat16)[:4])
assert (y[:2] == 0).all() and (x.astype(ml_dtypes.bfloat16)[:2] != 0).all()
assert (y[2:4] == x.astype(ml_dtypes.bfloat16)[2:4]).all()
EOF
