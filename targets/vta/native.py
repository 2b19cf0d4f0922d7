"""A few words over llvmlite's builder, with which the simulators' inner loops are written, and their compilation.

Variables live in memory until LLVM puts them in registers, so that loops and conditions need no phi nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from targets.jit import LinkedObjects

I8, I16, I32, I64, I1 = (ir.IntType(bits) for bits in (8, 16, 32, 64, 1))
POINTER = ir.PointerType()

Value = Any
"""llvmlite's values have no types that a checker knows."""


def i64(value: int) -> Value:
    """Returns a constant of 64 bits."""
    return ir.Constant(I64, value)


class Code:
    """A function under construction; numbers are int64 unless said otherwise."""

    def __init__(self, module: ir.Module, name: str, arguments: str, result: Value = I64) -> None:
        """Starts a function of arguments `name` (int64) or `name*` (pointer), listed in one text."""
        names = arguments.split()
        kinds = [POINTER if name.endswith("*") else I64 for name in names]
        self.function = ir.Function(module, ir.FunctionType(result, kinds), name)
        self.entry = self.function.append_basic_block("entry")
        self.build = ir.IRBuilder(self.function.append_basic_block("start"))
        self.arguments = {name.rstrip("*"): value for name, value in zip(names, self.function.args, strict=True)}

    def __getitem__(self, name: str) -> Value:
        """Returns an argument."""
        return self.arguments[name]

    def finish(self, value: Value | None = None) -> None:
        """Returns, and ends the function."""
        if value is None:
            self.build.ret_void()
        else:
            self.build.ret(value)
        ir.IRBuilder(self.entry).branch(self.function.blocks[1])

    def variable(self, value: Value) -> Value:
        """Creates a variable with a value; `get` and `set` access it."""
        place = self._allocate(value.type)
        self.build.store(value, place)
        return place

    def _allocate(self, kind: Value) -> Value:
        """Allocates stack memory for a value of type `kind`; the pointer may be read as any type."""
        place = ir.IRBuilder(self.entry).alloca(kind)
        place.type = POINTER
        return place

    def array(self, count: int, value: int = 0) -> Value:
        """Creates a small array with the same value everywhere."""
        place = self._allocate(ir.ArrayType(I64, count))
        for number in range(count):
            self.put(place, i64(number), i64(value))
        return place

    def get(self, pointer: Value, kind: Value = I64) -> Value:
        """Reads a variable."""
        return self.build.load(pointer, typ=kind)

    def set(self, pointer: Value, value: Value) -> None:
        """Changes a variable."""
        self.build.store(value, pointer)

    def at(self, base: Value, index: Value, kind: Value = I64) -> Value:
        """Returns the address of element `index`."""
        return self.build.gep(base, [index], source_etype=kind)

    def take(self, base: Value, index: Value, kind: Value = I64, align: int | None = None) -> Value:
        """Reads element `index` of an array."""
        return self.build.load(self.at(base, index, kind), align=align, typ=kind)

    def put(self, base: Value, index: Value, value: Value, align: int | None = None) -> None:
        """Writes element `index` of an array."""
        self.build.store(value, self.at(base, index, value.type), align=align)

    def add(self, *values: Value) -> Value:
        """Returns the sum."""
        total = values[0]
        for value in values[1:]:
            total = self.build.add(total, value)
        return total

    def mul(self, left: Value, right: Value) -> Value:
        """Returns the product."""
        return self.build.mul(left, right)

    def largest(self, left: Value, right: Value) -> Value:
        """Returns the larger of two signed integers."""
        return self.build.select(self.is_(left, ">", right), left, right)

    def is_(self, left: Value, relation: str, right: Value) -> Value:
        """Compares signed integers."""
        return self.build.icmp_signed(relation, left, right)

    @contextmanager
    def while_(self, condition: Callable[[], Value]) -> Iterator[Value]:
        """Emits a loop; yields the block to branch to in order to leave it."""
        head, body, after = (self.function.append_basic_block(name) for name in ("head", "body", "after"))
        self.build.branch(head)
        self.build.position_at_end(head)
        self.build.cbranch(condition(), body, after)
        self.build.position_at_end(body)
        yield after
        if not self.build.block.is_terminated:
            self.build.branch(head)
        self.build.position_at_end(after)

    @contextmanager
    def range(self, begin: Value, end: Value, step: int = 1) -> Iterator[Value]:
        """Emits a counted loop; yields the counter."""
        counter = self.variable(begin)
        with self.while_(lambda: self.is_(self.get(counter), "<", end)):
            value = self.get(counter)
            yield value
            self.set(counter, self.add(value, i64(step)))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emits a block that runs only if the condition holds."""
        with self.build.if_then(condition):
            yield

    def cases(self, value: Value, bodies: dict[int, Callable[[], None]]) -> None:
        """Runs the body whose number the value is, if any."""
        after = self.function.append_basic_block("after")
        switch = self.build.switch(value, after)
        for number, body in bodies.items():
            block = self.function.append_basic_block(f"case{number}")
            switch.add_case(i64(number), block)
            self.build.position_at_end(block)
            body()
            self.build.branch(after)
        self.build.position_at_end(after)


def new_module(name: str) -> ir.Module:
    """Creates a module for this host."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module(name)
    module.triple = llvm.get_process_triple()
    return module


class CompiledModule:
    """A module's functions in this process."""

    def __init__(self, module: ir.Module) -> None:
        """Optimises and compiles for this host's processor."""
        parsed = llvm.parse_assembly(str(module))
        target = llvm.Target.from_triple(module.triple)
        features = llvm.get_host_cpu_features().flatten()
        machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic")
        parsed.verify()
        # What is worth a vector is one already; without these passes compilation takes half the time.
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(parsed, builder)
        symbols = [function.name for function in module.functions if not function.is_declaration]
        self._linked_objects = LinkedObjects([machine.emit_object(parsed)], symbols)

    def address(self, name: str) -> int:
        """Returns the address of a function's code."""
        return self._linked_objects.address(name)
