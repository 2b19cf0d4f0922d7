"""Names and classes of the modes, ways to compute with a network's numbers: a new one is a file and a line here."""

PRECISIONS = {
    "float32": "autotune.compiler.modes.float32:Float32",
    "bfloat16": "autotune.compiler.modes.narrow:BFloat16",
    "float16": "autotune.compiler.modes.narrow:Float16",
    "mixed": "autotune.compiler.modes.mixed:Mixed",
}
"""Values of `network.precision`: types that layers multiply, and that values between kernels are stored in."""

CHOOSING = frozenset({"mixed"})
"""Precisions that choose types kernel by kernel, by measured times: only networks of model files have them."""

QUANTISATIONS = {
    "int8": "autotune.compiler.modes.integers:Int8",
    "shift8": "autotune.compiler.modes.integers:Shift8",
    "weights8": "autotune.compiler.modes.weights:Weights8",
    "weights4": "autotune.compiler.modes.weights:Weights4",
}
"""Values of `network.quantise`: modes whose layers compute with integers or read weights of few bits."""
