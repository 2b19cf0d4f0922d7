"""The configuration of a VTA accelerator: block sizes, buffers, instruction field widths and timing constants."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from search_space import strict_json

WORD_BITS = 64  # an instruction has two words
ITERATION_BITS = 14  # of the fields `iter_out` and `iter_in`
MOST_CYCLES, SLOWEST_RATE, FASTEST_CLOCK = 1 << 24, 1 / 1024, 1e12
"""Largest timing constant, fewest bytes a cycle and most cycles a second: far from what is built, and near enough for
every sum of cycles to fit 64 bits."""
_NAME = re.compile(r"[\w-]+")


class ConfigurationError(ValueError):
    """A configuration that no VTA can have."""


@dataclass(frozen=True)
class VtaHardware:
    """A VTA design; the defaults are the PYNQ's.

    `dma_row_latency`, `wgt_bytes_per_cycle` and `host_cycles` are fitted to the PYNQ's measured layers by
    benchmarks/vta_calibration.py (see docs/vta.md).

    Sizes are given as log2, as in VTA's own configuration files. One micro-operation of the GEMM unit multiplies BATCH
    x BLOCK_IN x BLOCK_OUT: inp [BATCH][BLOCK_IN], wgt [BLOCK_OUT][BLOCK_IN] and acc [BATCH][BLOCK_OUT] are one element
    each.

    Attributes:
        name: name of the design.
        log_inp_width, log_wgt_width, log_acc_width: log2 bits of a number; only int8, int8 and int32 are simulated.
        log_batch, log_block_in, log_block_out: log2 of the block sizes.
        log_uop_buffer, log_inp_buffer, log_wgt_buffer, log_acc_buffer: log2 bytes of the on-chip buffers.
        clock_hz: cycles a second.
        queue_depth: instructions that the queue of each module holds.
        token_limit: tokens a dependency queue counts to; further ones are lost.
        fetch_latency: cycles until the first instruction arrives.
        fetch_interval: cycles between instructions, 16 bytes over a port of 64 bits.
        gemm_latency, alu_latency, noop_latency: cycles of an instruction besides its micro-operations.
        gemm_interval: cycles between micro-operations.
        alu_tensor_interval, alu_imm_interval: the same for the ALU, with a tensor or a number as second operand.
        dma_latency: cycles before the first row of a transfer.
        dma_row_latency: cycles that each row of a transfer adds.
        dma_bytes_per_cycle: bytes a cycle of the memory port that the modules share: 64 bits.
        wgt_bytes_per_cycle: upper bound for weights, whose buffer takes them more slowly than the port delivers.
        host_cycles: cycles that the host adds to every run: it writes the instructions, starts the device and waits for
            it.
    """

    name: str = "pynq"
    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block_in: int = 4
    log_block_out: int = 4
    log_uop_buffer: int = 15
    log_inp_buffer: int = 15
    log_wgt_buffer: int = 18
    log_acc_buffer: int = 17
    clock_hz: float = 100e6
    queue_depth: int = 512
    token_limit: int = 255
    fetch_latency: int = 21
    fetch_interval: int = 2
    gemm_latency: int = 6
    gemm_interval: int = 1
    alu_latency: int = 6
    alu_tensor_interval: int = 2
    alu_imm_interval: int = 1
    noop_latency: int = 2
    dma_latency: int = 22
    dma_row_latency: int = 38
    dma_bytes_per_cycle: float = 8.0
    wgt_bytes_per_cycle: float = 3.7
    host_cycles: int = 12_900

    def __post_init__(self) -> None:
        """Holds the configuration against the rules.

        Raises:
            ConfigurationError: a rule is broken.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            kinds: tuple[type, ...] = {"str": (str,), "int": (int,), "float": (int, float)}[str(field.type)]
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ConfigurationError(f"`{field.name}` must be {field.type}, but got {field.name}={value!r}")
        for name, expected in {"log_inp_width": 3, "log_wgt_width": 3, "log_acc_width": 5}.items():
            if getattr(self, name) != expected:
                raise ConfigurationError(f"`{name}` must be {expected}, but got {name}={getattr(self, name)}")
        for name in ("log_batch", "log_block_in", "log_block_out"):
            if not 0 <= getattr(self, name) <= 7:
                raise ConfigurationError(f"`{name}` must be between 0 and 7, but got {name}={getattr(self, name)}")
        for memory in ("uop", "inp", "wgt", "acc"):
            size, element = getattr(self, f"log_{memory}_buffer"), getattr(self, f"{memory}_bytes")
            if not (0 <= size <= 30 and element <= 1 << size):
                raise ConfigurationError(
                    f"`log_{memory}_buffer` must hold at least one element of {element} bytes and at most 1 GiB, "
                    f"but got log_{memory}_buffer={size}"
                )
            if getattr(self, f"{memory}_depth") > 1 << 16:
                depth = getattr(self, f"{memory}_depth")
                raise ConfigurationError(f"`{memory}_depth` must be at most 65536 (16 bits), but got {depth}")
        self._check_fields()
        self._check_times()

    def _check_fields(self) -> None:
        """Checks that every index fits the bits that the instructions have for it."""
        uop = {"dst": self.acc_bits, "src": self.src_bits, "wgt": self.wgt_bits}
        gemm = [2 * self.acc_bits, 2 * self.inp_bits, 2 * self.wgt_bits]
        head = 8 + self.uop_bits + (self.uop_bits + 1) + 2 * ITERATION_BITS
        for what, bits, most in (
            ("a micro-operation", sum(uop.values()), 32),
            ("the factors of GEMM", sum(gemm), WORD_BITS),
            ("the factors of ALU with its immediate", 4 * self.acc_bits + 20, WORD_BITS),
            ("the head of GEMM and ALU", head, WORD_BITS),
        ):
            if bits > most:
                raise ConfigurationError(
                    f"{what} must fit {most} bits, but the buffers need {bits}: depths are uop={self.uop_depth}, "
                    f"inp={self.inp_depth}, wgt={self.wgt_depth}, acc={self.acc_depth}"
                )

    def _check_times(self) -> None:
        """Times are not negative, and nothing takes no time at all where something must end."""
        positive = {
            "clock_hz",
            "dma_bytes_per_cycle",
            "wgt_bytes_per_cycle",
            "queue_depth",
            "token_limit",
            "gemm_interval",
        }
        positive |= {"alu_tensor_interval", "alu_imm_interval", "fetch_interval"}
        for field in fields(self):
            if field.name.startswith("log_") or field.name == "name":
                continue
            value, least = getattr(self, field.name), "positive" if field.name in positive else "not negative"
            if not (value > 0 if field.name in positive else value >= 0) or value == float("inf"):
                raise ConfigurationError(f"`{field.name}` must be {least}, but got {field.name}={value}")
            if field.name.endswith("bytes_per_cycle") and value < SLOWEST_RATE:
                raise ConfigurationError(
                    f"`{field.name}` must be at least {SLOWEST_RATE}, but got {field.name}={value}"
                )
            if value > (most := FASTEST_CLOCK if field.name == "clock_hz" else MOST_CYCLES):
                shown = f"{value:g}" if value < 1e300 else "a number without end"
                raise ConfigurationError(f"`{field.name}` must be at most {most:g}, but got {field.name}={shown}")

    @property
    def batch(self) -> int:
        """Rows of a block."""
        return 1 << self.log_batch

    @property
    def block_in(self) -> int:
        """Input channels of a block."""
        return 1 << self.log_block_in

    @property
    def block_out(self) -> int:
        """Output channels of a block."""
        return 1 << self.log_block_out

    @property
    def uop_bytes(self) -> int:
        """Bytes of a micro-operation."""
        return 4

    @property
    def inp_bytes(self) -> int:
        """Bytes of an element of the input buffer."""
        return self.batch * self.block_in

    @property
    def wgt_bytes(self) -> int:
        """Bytes of an element of the weight buffer."""
        return self.block_out * self.block_in

    @property
    def acc_bytes(self) -> int:
        """Bytes of an element of the accumulator."""
        return 4 * self.batch * self.block_out

    @property
    def out_bytes(self) -> int:
        """Bytes of an element as it is stored."""
        return self.batch * self.block_out

    @property
    def uop_depth(self) -> int:
        """Micro-operations that the buffer holds."""
        return (1 << self.log_uop_buffer) // self.uop_bytes

    @property
    def inp_depth(self) -> int:
        """Elements that the input buffer holds."""
        return (1 << self.log_inp_buffer) // self.inp_bytes

    @property
    def wgt_depth(self) -> int:
        """Elements that the weight buffer holds."""
        return (1 << self.log_wgt_buffer) // self.wgt_bytes

    @property
    def acc_depth(self) -> int:
        """Elements that the accumulator holds."""
        return (1 << self.log_acc_buffer) // self.acc_bytes

    @property
    def uop_bits(self) -> int:
        """Bits of an index into the micro-operations."""
        return self.uop_depth.bit_length() - 1

    @property
    def inp_bits(self) -> int:
        """Bits of an index into the input buffer."""
        return self.inp_depth.bit_length() - 1

    @property
    def wgt_bits(self) -> int:
        """Bits of an index into the weight buffer."""
        return self.wgt_depth.bit_length() - 1

    @property
    def acc_bits(self) -> int:
        """Bits of an index into the accumulator."""
        return self.acc_depth.bit_length() - 1

    @property
    def src_bits(self) -> int:
        """Bits of a micro-operation's source, which is in the input buffer (GEMM) or the accumulator (ALU)."""
        return max(self.inp_bits, self.acc_bits)

    @property
    def peak_macs_per_second(self) -> float:
        """Multiplications with addition a second."""
        return self.batch * self.block_in * self.block_out * self.clock_hz / self.gemm_interval

    @property
    def shape(self) -> VtaHardware:
        """Design of equal blocks and buffers, without a name and with default times: all that affects results."""
        logs = {field.name: getattr(self, field.name) for field in fields(self) if field.name.startswith("log_")}
        return VtaHardware(name="", **logs)

    @property
    def spec(self) -> str:
        """Name of the target of this design: `vta` and the fields that are not the PYNQ's, which `from_spec` reads.

        Raises:
            ConfigurationError: a name that is ambiguous.
        """
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"`name` must be of letters, digits, _ and - to be part of a target's name, but got name={self.name!r}"
            )
        changed = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return f"vta:{','.join(changed)}" if changed else "vta"

    def seconds(self, cycles: float) -> float:
        """Converts cycles to seconds."""
        return cycles / self.clock_hz

    def with_blocks(self, batch: int, block_in: int, block_out: int) -> VtaHardware:
        """Returns this design with another block, and its buffers halved as often as the instructions' fields need.

        Raises:
            ConfigurationError: a size that is no power of two, or a block no buffer can hold.
        """
        logs = {}
        for name, size in {"batch": batch, "block_in": block_in, "block_out": block_out}.items():
            if size < 1 or size & (size - 1):
                raise ConfigurationError(f"`{name}` must be a power of two, but got {name}={size}")
            logs[name] = size.bit_length() - 1
        elements = {"inp": logs["batch"] + logs["block_in"], "wgt": logs["block_in"] + logs["block_out"]}
        elements["acc"] = logs["batch"] + logs["block_out"] + 2
        depths = {memory: getattr(self, f"log_{memory}_buffer") - log for memory, log in elements.items()}
        depths["acc"] = min(depths["acc"], 11)
        while sum(depths.values()) > 32 or max(depths["inp"], depths["acc"]) + depths["acc"] + depths["wgt"] > 32:
            depths[max(depths, key=lambda memory: depths[memory])] -= 1
        sizes = {f"log_{memory}_buffer": depths[memory] + elements[memory] for memory in elements}
        changed = {f"log_{name}": log for name, log in logs.items()}
        return replace(self, name=f"{self.name}-{batch}x{block_in}x{block_out}", **changed, **sizes)

    def to_json(self) -> dict[str, Any]:
        """Converts the design to plain data, every field by name."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> VtaHardware:
        """Makes a configuration from plain data of `to_json`; missing fields have their defaults.

        Raises:
            ConfigurationError: an unknown key, or a rule is broken.
        """
        known = {field.name for field in fields(VtaHardware)}
        for key in data:
            if key not in known:
                raise ConfigurationError(f"`hardware` must have keys among {', '.join(sorted(known))}, but got {key!r}")
        return VtaHardware(**data)

    @staticmethod
    def from_spec(text: str) -> VtaHardware:
        """Parses a design `FIELD=VALUE,FIELD=VALUE`, all other fields as the PYNQ's.

        Raises:
            ConfigurationError: a value that is no number, an unknown field, or a rule is broken.
        """
        data: dict[str, Any] = {}
        for part in text.split(","):
            field, _, value = part.partition("=")
            try:
                data[field] = value if field == "name" else strict_json.loads(value)
            except ValueError:
                raise ConfigurationError(f"a design must be FIELD=NUMBER,FIELD=NUMBER, but got {text!r}") from None
        return VtaHardware.from_json(data)

    def key(self) -> str:
        """Formats the configuration as one line of text, to compare and to cache by."""
        return json.dumps(self.to_json(), sort_keys=True)


PYNQ = VtaHardware()
"""The design that VTA's published measurements were made on."""
