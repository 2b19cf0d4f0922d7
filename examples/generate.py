"""Generator of text or tokens by a decoder of GPT-2's or Llama's architecture; it prints the tokens a second.

    python examples/generate.py model.gguf "Once upon a time" --count 64 --activations bytes
    python examples/generate.py                       # GPT-2 small of random weights
    python examples/generate.py --weights model.safetensors --prompt 464,3290,318
    python examples/generate.py --kind llama --hidden 256 --layers 4 --heads 8 --top-k 40

A GGUF file has sizes and a tokenizer. Other weights have the names that Hugging Face gives them; with the package
`transformers` and `--tokenizer NAME` the prompt may be text.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from autotune import language


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", help="a GGUF file, in place of --kind, --weights and sizes")
    parser.add_argument("text", nargs="?", help="text that the model of the file continues")
    parser.add_argument("--kind", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--weights", help="a safetensors file; random ones where it is left out")
    for name, size in (("vocabulary", 50257), ("hidden", 768), ("layers", 12), ("heads", 12)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--longest", type=int, default=256, help="tokens of the prompt and of what follows at most")
    parser.add_argument("--prompt", default="1,2,3,4", help="tokens with commas between them, or text")
    parser.add_argument("--tokenizer", help="name of a tokenizer of `transformers`")
    parser.add_argument("--count", type=int, default=32, help="tokens to generate")
    parser.add_argument("--top-k", type=int, help="draw among so many; the likeliest where it is left out")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--quantise", choices=["weights8", "weights4"], help="weights of so many bits; default: floats")
    parser.add_argument(
        "--activations", choices=["floats", "bytes"], default="floats", help="that such weights multiply"
    )
    parser.add_argument("--states", choices=["float32", "float16"], default="float32", help="dtype of keys and values")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if (options.file is None) != (options.text is None):
        parser.error("a file must be followed by a text")
    if not options.tokenizer and not all(part.strip().isdecimal() for part in options.prompt.split(",")):
        parser.error(f"--prompt must be tokens, or --tokenizer given, but got {options.prompt!r}")

    gguf = None if options.file is None else language.read_gguf(options.file)
    model = make_model(options) if gguf is None else gguf.model
    start = time.perf_counter()
    network = language.compile(
        model,
        options.longest,
        threads=options.threads,
        precision=options.precision,
        quantise=options.quantise,
        activations=options.activations,
        states=options.states,
    )
    print(f"compiled in {time.perf_counter() - start:.1f} s, {network.weights_bytes / 1e6:.0f} MB of weights")

    shown: Callable[[list[int]], str] = str
    stops: frozenset[int] = frozenset()
    if gguf is not None:
        tokens, shown, stops = gguf.tokenizer.encode(options.text), gguf.tokenizer.decode, gguf.tokenizer.stops
    elif options.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
        tokens, shown = tokenizer.encode(options.prompt), tokenizer.decode
    else:
        tokens = [int(part) for part in options.prompt.split(",")]
    sampler = language.greedy
    if options.top_k:
        sampler = language.TopK(np.random.default_rng(options.seed), options.top_k, options.temperature)
    start = time.perf_counter()
    network.prefill(tokens)
    prompt = time.perf_counter() - start
    start = time.perf_counter()
    answer = network.generate(tokens, options.count, sampler, stops.__contains__)
    took = time.perf_counter() - start - prompt
    print(shown(answer))
    print(f"prompt of {len(tokens)}: {prompt * 1e3:.1f} ms; {(len(answer) - 1) / took:.1f} tokens/s")


def make_model(options: argparse.Namespace) -> language.Model:
    """Makes the model of the options, of random weights or those of a safetensors file."""
    sizes = {name: getattr(options, name) for name in ("vocabulary", "hidden", "layers", "heads")}
    weights = None if options.weights is None else language.read_safetensors(options.weights)
    if options.kind == "gpt2":
        return language.gpt2(language.GPT2(**sizes, positions=max(1024, options.longest)), weights)
    inner = 8 * options.hidden // 3
    return language.llama(language.Llama(**sizes, kv_heads=options.heads, inner=inner), weights)


if __name__ == "__main__":
    main()
