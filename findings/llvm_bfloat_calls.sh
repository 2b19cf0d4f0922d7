#!/usr/bin/env bash
# Guess: on processors without AVX512_BF16, LLVM rounds vectors to bfloat by shifts and additions.
# Case: the loop is vectorised and every lane then calls `__truncsfbf2`, up to x86-64-v4, though that has vectors of
# 512 bits. fptrunc to half calls nothing from x86-64-v3 on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile llvmlite==0.50.0
"$folder/env/bin/python" - <<'EOF'
import re

import llvmlite
import llvmlite.binding as llvm

print("llvmlite", llvmlite.__version__, "LLVM", llvm.llvm_version_info)
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


def calls(kind, cpu):
    source = f"""
    define void @f(ptr %x, ptr %y) {{
      %a = load <8 x float>, ptr %x, align 4
      %b = fptrunc <8 x float> %a to <8 x {kind}>
      store <8 x {kind}> %b, ptr %y, align 2
      ret void
    }}
    """
    triple = "x86_64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3, reloc="static")
    module = llvm.parse_assembly(source)
    module.triple = triple
    return len(re.findall(r"\bcall", machine.emit_assembly(module)))


seen = {(kind, cpu): calls(kind, cpu) for kind in ("bfloat", "half") for cpu in ("x86-64-v3", "x86-64-v4", "znver4")}
for (kind, cpu), count in seen.items():
    print("eight floats to", kind, "on", cpu, "calls:", count)
assert seen["bfloat", "x86-64-v3"] == seen["bfloat", "x86-64-v4"] == 8
assert seen["bfloat", "znver4"] == seen["half", "x86-64-v3"] == seen["half", "x86-64-v4"] == 0
EOF
