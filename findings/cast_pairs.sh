#!/usr/bin/env bash
# Guess: a cast to a narrow float and back rounds, so it simulates a quantised network.
# Case: TVM drops the pair: 500 stays 500 "through" float8_e4m3fn. IREE rounds to bfloat16 between tensors, and drops
# the pair inside one linalg.generic.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 \
    apache-tvm==0.27.0.post1 iree-base-compiler==3.13.0 iree-base-runtime==3.13.0
"$folder/env/bin/python" - <<'EOF'
import iree.compiler
import iree.runtime
import numpy
import tvm
from importlib.metadata import version
from tvm import te

print("tvm", tvm.__version__, "iree", version("iree-base-compiler"))
x = numpy.array([1.001, 3.14159, 500], numpy.float32)
rounded = numpy.array([1, 3.140625, 500], numpy.float32)
seen = {}
for kind in ("bfloat16", "float8_e4m3fn"):
    a = te.placeholder(x.shape, "float32", "A")
    b = te.compute(x.shape, lambda i: a[i].astype(kind).astype("float32"), "B")
    result = tvm.runtime.empty(x.shape, "float32", tvm.cpu())
    tvm.compile(te.create_prim_func([a, b]), target="llvm")(tvm.runtime.tensor(x, tvm.cpu()), result)
    seen[f"TVM, {kind}"] = result.numpy()
tensors = """
      %a = arith.truncf %x : tensor<3xf32> to tensor<3xbf16>
      %b = arith.extf %a : tensor<3xbf16> to tensor<3xf32>
"""
generic = """
      %e = tensor.empty() : tensor<3xf32>
      %b = linalg.generic {
        indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]}
        ins(%x : tensor<3xf32>) outs(%e : tensor<3xf32>) {
      ^bb0(%i : f32, %o : f32):
        %a = arith.truncf %i : f32 to bf16
        %r = arith.extf %a : bf16 to f32
        linalg.yield %r : f32
      } -> tensor<3xf32>
"""
for name, body in (("IREE, tensors", tensors), ("IREE, linalg.generic", generic)):
    module = iree.compiler.compile_str(
        "func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {" + body + "return %b : tensor<3xf32> }",
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=generic"],
    )
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    seen[name] = numpy.asarray(context.modules.module.f(x))
for name, y in seen.items():
    print(name, x, "becomes", y)
assert numpy.array_equal(seen.pop("IREE, tensors"), rounded)
assert all(numpy.array_equal(y, x) for y in seen.values())
EOF
