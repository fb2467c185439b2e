"""The command `fedkernel init`: a commented experiment that runs at once on bundled data."""

import csv
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import fedkernel.site
from fedkernel import peers
from fedkernel.engines import grpc
from fedkernel.experiments import commands
from fedkernel.experiments.commands.console import print_line
from fedkernel.experiments.commands.policy import TEMPLATE
from fedkernel.ground import InputError

TEMPLATES = Path(__file__).parent
SITES = ("north", "east", "south")
ADDRESS = "127.0.0.1:8443"


class Kind(StrEnum):
    """Kinds of experiments that `fedkernel init` can write, each a template."""

    vertical = "vertical"
    horizontal = "horizontal"
    peers = "peers"
    sites = "sites"


def init(
    kind: Annotated[
        Kind,
        Argument(
            metavar="KIND",
            help="vertical: columns are divided; horizontal: rows are; peers: no server reads anything; sites: a "
            "folder with all that three processes need.",
        ),
    ],
    out: Annotated[Path, Option(help="Folder.")] = Path(),
) -> None:
    """Write a commented experiment that runs at once, and print the next command."""
    path = out / (kind if kind is Kind.sites else f"{kind}.toml")
    if path.exists():
        raise InputError(f"{path} exists already, and nothing is written over; give another folder by --out")
    text = (TEMPLATES / f"{kind}.toml").read_text(encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind is Kind.sites:
        _write_sites(path, text)
        return
    path.write_text(text, encoding="utf-8")
    print_line(f"wrote {path}: its comments say which lines to change for files of your own; next:")
    print_line(shlex.join(["fedkernel", "run", str(path)]))


def _write_sites(folder: Path, text: str) -> None:
    """Write a study of three sites with all that they need, and print a command for each process."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 - the help does not wait for it

    grpc.make_certificates(folder / "tls", ["localhost", "127.0.0.1"], SITES)
    patients, study = load_breast_cancer(), folder / "sites.toml"
    policy = TEMPLATE.read_text(encoding="utf-8").replace('sums = "plain" ', 'sums = "masked"')
    for number, site in enumerate(SITES):
        key = peers.KeyPair.new()
        key.write(folder / f"{site}.pem")
        text += f'{site} = "{key.listed}"\n'
        (folder / f"{site}.policy.toml").write_text(policy, encoding="utf-8")
        with (folder / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            sheet = csv.writer(file)
            sheet.writerow(["patient", "diagnosis", *patients.feature_names])
            for row in range(number, len(patients.data), len(SITES)):
                sheet.writerow([f"p{row:03}", patients.target[row], *patients.data[row]])
    study.write_text(text, encoding="utf-8")
    for site in SITES:
        fedkernel.site.approve(folder / site, commands.read_study(study).sha256)
    print_line(f"wrote {folder}: a study, sites.toml, and each site's table, policy, identity and certificate")
    print_line("the study is approved for each site; next, each command in a terminal of its own:")
    print_line(f"cd {shlex.quote(str(folder))}")
    print_line(f"fedkernel serve sites.toml --listen {ADDRESS} --tls tls/server --out results")
    for site in SITES:
        print_line(
            f"fedkernel join {ADDRESS} --name {site} --tls tls/{site} --identity {site}.pem "
            f"--policy {site}.policy.toml --data {site}.csv --id patient --label diagnosis --out {site}"
        )
