"""Draws of Fourier transforms and of blocks that are put together."""

from __future__ import annotations

import numpy as np

from tests.autotune.graph.drawing import Draw, draws


@draws("DFT")
def transform(d: Draw, op: str) -> None:
    d.at(17, 20)
    shape = (*d.shape(2, 3, 6), d.number(1, 2))
    axis = d.number(1 if d.opset == 17 else 0, len(shape) - 2)
    inverse = d.number(0, 1)
    onesided = 0 if inverse or shape[-1] == 2 else d.number(0, 1)
    names = [d.add_input(shape), d.add_constant(d.number(1, 9), np.int64) if d.chance() else ""]
    if d.opset == 17:
        d.node(op, names, axis=axis, inverse=inverse, onesided=onesided)
    else:
        d.node(
            op, [*names, d.add_constant(d.pick(axis, axis - len(shape)), np.int64)], inverse=inverse, onesided=onesided
        )


@draws("STFT")
def frames(d: Draw, op: str) -> None:
    length, step = d.number(2, 9), d.number(1, 4)
    names = [d.add_input((d.number(1, 2), length + d.number(0, 12), 1)), d.add_constant(step, np.int64)]
    names.append(d.floats((length,)) if d.chance() else "")
    names.append(d.add_constant(length, np.int64) if not names[2] or d.chance() else "")
    d.node(op, names, **d.some(onesided=d.number(0, 1)))


@draws("Col2Im")
def blocks(d: Draw, op: str) -> None:
    d.opset = 18
    block, counts = [d.number(1, 3) for _ in range(2)], [d.number(1, 4) for _ in range(2)]
    apart = d.chance(0.3)
    stride = block if apart else [d.number(1, 3) for _ in range(2)]
    dilation = [1, 1] if apart else [d.number(1, 2) for _ in range(2)]
    reach = [(n - 1) * s + (k - 1) * e + 1 for n, s, k, e in zip(counts, stride, block, dilation, strict=True)]
    pads = [0] * 4 if apart else [d.number(0, 1) for _ in range(4)]
    image = [max(1, r - pads[a] - pads[a + 2]) for a, r in enumerate(reach)]
    if any(r != n + pads[a] + pads[a + 2] for a, (n, r) in enumerate(zip(image, reach, strict=True))):
        image, pads = reach, [0] * 4
    value = d.add_input((d.number(1, 2), d.number(1, 3) * block[0] * block[1], counts[0] * counts[1]))
    names = [value, d.add_constant(image, np.int64), d.add_constant(block, np.int64)]
    d.node(
        op,
        names,
        strides=stride,
        **d.some(dilations=dilation) if dilation == [1, 1] else {"dilations": dilation},
        pads=pads,
    )
