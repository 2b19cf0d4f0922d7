"""`tune`: from a workload to a kernel, with a default for every option."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from autotune.config import Measure, Model, Search, Transfer
from autotune.tuner.callbacks import Callback
from autotune.tuner.preparation import open_source
from autotune.tuner.result import TuneResult
from autotune.tuner.search.base import SearchStrategy
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.tune_tasks import Need, TaskRequest, tune_tasks
from costmodel.models.base import CostModel
from costmodel.transfer import Source
from measure.database import Database
from measure.pool import MeasurePool
from search_space.operators.checks import integer
from search_space.space import SearchSpace
from search_space.te import Tensor
from search_space.template import TuningTemplate
from search_space.workloads import Workload
from targets import registry as targets
from targets.base import Target


def tune(
    workload: Workload | Sequence[Tensor] | TuningTemplate,
    target: str | targets.Design = "cpu",
    trials: int = 64,
    seed: int = 0,
    *,
    search: Search | str | type[SearchStrategy] = Search(),
    cost_model: Model | str | type[CostModel] | CostModel = Model(),
    measure: Measure | str | MeasurePool = Measure(),
    transfer: Transfer | Source | str | os.PathLike[str] | None = None,
    algorithms: Sequence[str] = (),
    records: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
) -> TuneResult:
    """Searches the schedules of a workload for the fastest one on this machine.

    Args:
        workload: computation to tune: one of `search_space.workloads`, or te tensors, inputs first, the output last; or
            a template with its arguments, whose knobs are then searched (`search_space.template`). An operator that
            only this process knows is passed to the workers, and into records, as plain data, see `workloads.own`.
        target: a name of `targets.registry`, or the design of an accelerator, such as `VtaHardware(log_inp_buffer=13)`.
        trials: number of candidates to measure.
        seed: seed of every random draw, and of the inputs.
        search: section of search options; or only a strategy, by its name or as a custom class.
        cost_model: section of options of the model that scores candidates before they are measured; or only its name,
            or a class; or an object, of which class and options are used, and which learns by the run's seed.
        measure: section of options of the measurement; or only a pool, by its name or open, which is left open.
        transfer: options of learning from other tasks, in place of `cost_model.transfer`; or only the source: a
            dataset's folder, a records file, a saved model, or a `Source` opened before, learned from once for many
            calls.
        algorithms: algorithms to search besides the default ones, such as `strassen`; `search.algorithms` restricts the
            search to its own.
        records: file to append records to. Records of this workload in it are not measured again.
        callbacks: listeners of the run.

    Returns:
        The result; after Ctrl-C from the measurements so far.

    Raises:
        NoLegalSchedule: no candidate keeps the target's limits.
        AllTrialsFailed: no candidate works; quotes the first failure.
        ValueError: the target, strategy, model or pool is unknown, an option is out of range, or the tensors are no
            definition.
        RecordError: `records` cannot be used.
        TransferError: `transfer` cannot be used.
    """
    integer("trials", trials)
    integer("seed", seed, 0)
    if isinstance(workload, str) or not isinstance(workload, Workload | TuningTemplate | Sequence):
        rule = "one of search_space.workloads, a template with its arguments, or tensors"
        raise ValueError(f"`workload` must be {rule}, but got workload={workload!r:.80}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ValueError(
                f"`callbacks` must be objects of autotune.tuner.callbacks.Callback, but got {callback!r:.80}"
            )
    on = targets.get(targets.target_name(target))
    space: SearchSpace | None = None
    if isinstance(workload, TuningTemplate):
        space = workload.space(on.hardware)
        workload = space.workload
    workload = workload if isinstance(workload, Workload) else Workload.of(workload)
    name, workload = workload.operator, workload.portable
    if space is not None:
        space = replace(space, workload=workload)
    settings = settings_for(on, trials, seed, search, cost_model, measure, transfer, algorithms)
    source, request = open_source(settings), TaskRequest(Task(name, workload), settings, space, need=Need.RESULT)
    with nullcontext() if records is None else Database(records) as database:
        (result,) = tune_tasks([request], database=database, source=source, callbacks=callbacks)
    return result


def settings_for(
    target: Target,
    trials: int,
    seed: int,
    search: Search | str | type[SearchStrategy] = Search(),
    cost_model: Model | str | type[CostModel] | CostModel = Model(),
    measure: Measure | str | MeasurePool = Measure(),
    transfer: Transfer | Source | str | os.PathLike[str] | None = None,
    algorithms: Sequence[str] = (),
) -> Settings:
    """Converts arguments of `tune` to settings."""
    model = cost_model if isinstance(cost_model, Model) else Model(name=cost_model)
    if transfer is not None:
        section = transfer if isinstance(transfer, Transfer) else Transfer(source=transfer)
        model = Model(**{**dict(model), "transfer": section})
    return Settings(
        target,
        trials,
        seed,
        search if isinstance(search, Search) else Search(strategy=search),
        model,
        measure if isinstance(measure, Measure) else Measure(pool=measure),
        tuple(algorithms),
    )
