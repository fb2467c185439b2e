"""Job behind `fedkernel serve FOLDER --project`: projection of sites' new rows onto a finished run's model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedkernel.data import file_hash
from fedkernel.engines import grpc
from fedkernel.experiments.commands.console import print_status
from fedkernel.experiments.config import Experiment, Sites
from fedkernel.experiments.running import Planned, plan, read_folder
from fedkernel.flower_apps import APPS
from fedkernel.ground import InputError, ensure_writable_folder, write_rows
from fedkernel.models import load_model
from fedkernel.run import Result
from fedkernel.wire import Job, Projecting, RunSpec, Study


class Projection(NamedTuple):
    """Projection of new rows to serve: a run, and the file of the finished run's model.

    `run` is the projecting run; or, where sites hold rows and label new ones alone, the finished one under the new id.
    """

    experiment: Experiment
    sites: Sites
    run: RunSpec
    model: Path

    def serve(self, out: Path, **serving: Any) -> None:
        """Have all sites project, and write the coordinates to a new folder, or send the sites the model.

        Further parameters are those of `fedkernel.engines.grpc.serve`.
        """
        experiment, run, folder = self.experiment, self.run, out / self.run.id
        if run.project is None:
            models = {f"{run.id}.model.npz": self.model}
            grpc.hand_out(Job(runs=[run], apps=APPS), models, self.sites.sites, **serving)
            return
        study = Study(name=f"{experiment.name}, new rows", runs=[run])
        print_status(f"study {study.sha256}, which each site approves")
        if folder.exists():
            raise InputError(f"{folder} exists already; choose another name (--name) or folder (--out)")
        ensure_writable_folder(out)
        job = Job(
            runs=[run],
            study=study,
            apps=APPS,
            out=str(out.resolve()),
            models={run.id: str(self.model.resolve())},
            deadline=experiment.deadline,
            deadlines=experiment.deadlines,
            threads=experiment.threads,
        )
        for _ in grpc.serve(job, self.sites.sites, **serving):
            coordinates = np.asarray(load_model(folder / "model.npz"))
            # nothing else is known of the rows
            path = write_rows(folder / "coordinates.csv", {"embedding": coordinates})
            print_status(f"wrote {path}: {len(coordinates):,} rows, in the common order of all sites")


def projection_of(folder: Path, run_id: str | None, name: str, *, to_sites: bool) -> Projection:
    """Return the projection of new rows, called `name`, onto a finished run's model in the output folder of serve.

    `run_id` is needed if several runs can project; `to_sites`: whether each site gets the coordinates, too. Raises
    InputError if there is no such run, or if its method or its sites cannot project.
    """
    experiment, finished = read_folder(folder)
    if not isinstance(experiment.data, Sites):
        raise InputError(f"{folder} is of an experiment without named sites; allowed: the output folder of serve")
    done = {row.id for row in finished}
    runs = [run for run in plan(experiment) if run.id in done and run.baseline is None]
    chosen = _chosen(runs, run_id, folder)
    model = folder / "results" / chosen.id / "model.npz"
    if chosen.strategy.partition == "horizontal":
        return Projection(experiment, experiment.data, _renamed_run(chosen.spec, name), model)
    result = Result.load(model.parent)
    orders = [row["values"]["order"] for row in result.history if row["phase"] == "align"]
    if not orders:
        raise InputError(f"the sites of run {chosen.id!r} had no ids, which align new rows (join --id)")
    spec, strategy = chosen.spec, chosen.strategy.as_run(result)
    to: Literal["sites", "coordinator"] = "sites" if to_sites else "coordinator"
    project = Projecting(of=chosen.id, order=orders[-1], model=file_hash(model), coordinates=to)
    fields = {"plan": strategy.projection_plan(to_sites=to_sites), "parameters": strategy.hyperparameters}
    run = _renamed_run(spec, name, **fields, project=project, joint_seed=False, evaluate=False)
    return Projection(experiment, experiment.data, run, model)


def _renamed_run(spec: RunSpec, name: str, **changed: Any) -> RunSpec:
    """Return a changed run with the new rows' name in its id."""
    fields = {field: getattr(spec, field) for field in RunSpec.model_fields} | changed
    try:
        return RunSpec(**fields | {"id": f"{spec.id}__{name}"})
    except ValueError:
        raise InputError(f"name = {name!r}, but must be letters, digits and . = , + - _") from None


def _can_project(run: Planned, folder: Path) -> bool:
    if run.strategy.partition == "vertical":
        return run.strategy.projection_plan(to_sites=True) is not None
    return hasattr(load_model(folder / "results" / run.id / "model.npz"), "transform")


def _chosen(runs: Sequence[Planned], run_id: str | None, folder: Path) -> Planned:
    able = [run for run in runs if _can_project(run, folder)]
    if not able:
        raise InputError(
            f"no run in {folder} is of a method that projects new rows; allowed: a model that can be applied to "
            "rows or, where sites hold columns, DKPCA, VFedPCA and VFedAKPCA"
        )
    by_id = {run.id: run for run in able}
    if run_id is None and len(able) > 1:
        raise InputError(f"{folder} has {len(able)} runs to project onto; choose one (--run): {', '.join(by_id)}")
    if run_id is not None and run_id not in by_id:
        raise InputError(f"run = {run_id!r}, but must be one of {', '.join(by_id)}")
    return able[0] if run_id is None else by_id[run_id]
