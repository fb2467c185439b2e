"""Runs and experiments as the report has them, without running any, and the tables of its page."""

import re

from fedkernel.experiments.config import Experiment, ReportOptions
from fedkernel.experiments.results import Run


def experiment(title="", text="", options=None):
    table = {
        "name": "x",
        "title": title,
        "data": {"name": "iris"},
        "partition": {"clients": 2},
        "strategy": [{"name": "a", "method": "DKPCA", "n_components": 1}],
        "report": (options or ReportOptions()).model_dump(),
    }
    return Experiment.from_table(table, "x.toml", text)


def a_round(number, error, **values):
    traffic = {"floats_up": 10, "floats_down": 2, "bytes_up": 80, "bytes_down": 16}
    metrics = {"error": error, **values}
    return {"round": number, "phase": "Power", "seconds": 0.01, "clients": 5, **traffic, "values": metrics}


def a_run(name="DKPCA-5", seed=0, error=0.001, **changed):
    row = {
        "id": f"{name}__{changed.get('point', {})}__seed={seed}",
        "name": name,
        "kind": "strategy",
        "method": "DKPCA",
        "parameters": {"n_components": 5, "kernel": {"type": "rbf", "gamma": 0.05}},
        "seed": seed,
        "engine": "local",
        "clients": 5,
        "metrics": {"error": error, "bound": None},
        "rounds": 1,
        "floats_up": 14250,
        "floats_down": 0,
        "bytes_up": 114900,
        "bytes_down": 2500,
        "seconds": 0.12,
        "phases": {"FindLocalEigenpairs": 0.09},
    }
    return Run.model_validate({**row, **changed})


def an_experiment(sweep=False):
    runs = []
    for clients in (2, 5, 10) if sweep else (5,):
        point = {"partition.clients": clients} if sweep else {}
        for seed in range(3):
            error = 1e-3 * clients * (1 + seed)
            history = [a_round(i, 10.0**-i) for i in range(1, 6)]
            runs += [
                a_run("DKPCA-5", seed, error, point=point, group="rbf"),
                a_run("VFedPCA", seed, 100 * error, point=point, group="linear", history=history, floats_up=900),
                a_run("central", seed, 0.0, point=point, kind="baseline", method="central", floats_up=0, phases={}),
            ]
    return runs


def tables(path):
    """Return the tables on a page by their labels, headings first; bold cells have stars."""
    page = path.read_text(encoding="utf-8")
    by_label = {}
    for label, table in re.findall(r'aria-label="([^"]*)">\s*<table[^>]*>(.*?)</table>', page, re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", table.replace("<strong>", "*").replace("</strong>", "*"), re.DOTALL)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
        by_label[label] = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in cells]
    return by_label
