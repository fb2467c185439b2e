"""Receipt of the replies that left a site in a run, signed by the site's identity, for people outside.

It follows from the outbox at any time. It reveals numbers and sizes of replies and refusals, which the coordinator
knows, and totals of all runs, which tell how much left for others. It has no hash of the table, since guesses of a row
could be tried with one. A signature proves who says so, not that it is true: a site can rewrite its outbox.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from fedkernel.ground import InputError, installed_version, read_json, write_atomic
from fedkernel.peers import KeyPair
from fedkernel.protocol import basis_of_privacy, share_text
from fedkernel.site.approval import signature_of, signer_of
from fedkernel.site.audit_log_reader import Count, Departure, Hash, departures_of
from fedkernel.site.policy import EXEMPT
from fedkernel.wire import HASH_DIGITS, Introduction

RECEIPTS = "receipts"  # folder of receipts in a site's, and of handed-over ones in an experiment's

Amount = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]


class SpentPrivacy(pydantic.BaseModel, extra="allow", frozen=True):
    """Privacy that noise gave a run: `epsilon`, `delta`, and other plain values such as adjacency and accountant.

    `epsilon_in_all`: of all runs of the site until this one's end.
    """

    epsilon: Amount
    delta: Amount
    epsilon_in_all: Amount


class PrivacyReceipt(pydantic.BaseModel, extra="forbid", frozen=True):
    """Receipt of a run at the `site`, over all starts of the run. `study`: SHA-256 of the approved study.

    - `left`: by type of reply, and number of sites in whose sum masks hide it (1: it can be read alone), the number of
      replies and their `floats`, `letters` and `rows` as in `Departure`. `refused`: number of refused requests.
    - `table_share`, `share_in_all`: numbers that left per entry of the table, in this run and in all until its end.
    - `sha256`: of the run's last line in the outbox, and so of all lines before.
    - `privacy`: None without noise. `signature`: of all the rest, see `signature_of`; empty without an identity.
    """

    form: Literal["fedkernel receipt 1"] = "fedkernel receipt 1"
    site: str
    run: str
    study: Hash | Literal[""]
    left: dict[str, dict[Annotated[int, pydantic.Field(ge=1)], dict[str, Count]]]
    refused: Count
    table_share: Amount
    share_in_all: Amount
    sha256: Hash
    privacy: SpentPrivacy | None
    versions: dict[str, str]
    signature: str = ""

    @property
    def signed(self) -> bytes:
        """Canonical JSON of all but the signature."""
        table = self.model_dump(mode="json", exclude={"signature"})
        return json.dumps(table, sort_keys=True, separators=(",", ":")).encode()

    @property
    def signer(self) -> str:
        """Public key of the signature, 64 hexadecimal digits, or empty if the signature is missing or wrong."""
        return signer_of(self.signature, self.signed)

    @property
    def sites(self) -> set[int]:
        """Numbers of sites per sum in `left`, except for reply types that a policy of masked sums exempts."""
        return {sites for reply, by_sites in self.left.items() if reply not in EXEMPT for sites in by_sites}


def read_receipts(paths: Iterable[Path]) -> list[PrivacyReceipt]:
    """Read receipts without checking signatures. Raises InputError at the first file that is no receipt."""
    return [read_json(PrivacyReceipt, path.read_text("utf-8", "replace"), str(path), InputError) for path in paths]


def write_receipts(out: Path, site: str, identity: KeyPair | None) -> list[Path]:
    """Write a receipt for each run and study in a folder's outbox, and return the paths, which are in `RECEIPTS`."""
    runs: dict[tuple[str, str], list[tuple[Departure, str]]] = {}
    for line, sha256 in departures_of(out):
        if line.standing.run.begun:
            runs.setdefault((line.run, line.study), []).append((line, sha256))
    versions = {name: version(name) for name in ("cryptography", "flwr", "numpy")} | {"fedkernel": installed_version()}
    paths = []
    for (run, study), lines in runs.items():
        left: dict[str, Any] = {line.reply: defaultdict(Counter) for line, _ in lines if line.reply}
        for line, _ in lines:
            if line.reply:
                counts = {"replies": 1, "floats": line.floats, "letters": line.letters, "rows": line.rows}
                left[line.reply][max(1, line.masked)].update(counts)
        refused, (end, sha256) = sum(bool(line.refused) for line, _ in lines), lines[-1]
        shares = {"table_share": end.standing.run.share, "share_in_all": end.standing.total.share}
        table = {"site": site, "run": run, "study": study, "left": left, "refused": refused, "sha256": sha256, **shares}
        spent = _spent([line for line, _ in lines], end.standing.total.epsilon)
        receipt = PrivacyReceipt.model_validate({**table, "privacy": spent, "versions": versions})
        if identity is not None:
            receipt = receipt.model_copy(update={"signature": signature_of(identity.signing, receipt.signed)})
        path = out / RECEIPTS / f"{run}-{study[:HASH_DIGITS] or 'no-study'}.json"
        paths.append(write_atomic(path, methodcaller("write", receipt.model_dump_json(indent=1).encode()), 0o600))
    return paths


def _spent(lines: Sequence[Departure], epsilon_in_all: float) -> dict[str, Any] | None:
    """Return the privacy spent in a run with these outbox lines, or None if a start was without noise.

    Without a study, each of its starts may be another run with the same id, and counts as in ``limits.total.epsilon``.
    """
    starts = [line.standing.privacy for line in lines if line.reply == Introduction.__name__]
    own = [start for start in (starts[-1:] if lines[0].study else starts) if start is not None]
    if not own or None in starts:
        return None
    sums = {name: sum(getattr(start, name) for start in own) for name in ("epsilon", "delta")}
    return {**vars(own[-1]), **sums, "epsilon_in_all": epsilon_in_all, **basis_of_privacy()}


def described(receipts: Sequence[PrivacyReceipt]) -> str:
    """Summarise one site's receipts in a text. Epsilons and deltas add up (basic composition)."""
    masked = "other replies than" if any(1 in it.sites for it in receipts) else "only"
    share, in_all = sum(it.table_share for it in receipts), max(it.share_in_all for it in receipts)
    spent = [it.privacy for it in receipts if it.privacy is not None]
    epsilon, delta = (sum(getattr(privacy, name) for privacy in spent) for name in ("epsilon", "delta"))
    noise = "no noise"
    if len(spent) == len(receipts):
        total = max(privacy.epsilon_in_all for privacy in spent)
        noise = f"epsilon {epsilon:g} ({total:g} in all its runs), delta {delta:g}"
    numbers = f"{share_text(share)} numbers for each entry of the table ({share_text(in_all)} in all its runs)"
    return f"{masked} masked sums, {numbers}, {noise}"


def faults_of(receipts: Sequence[PrivacyReceipt], keys: Mapping[str, str]) -> list[str]:
    """Return a sentence for each contradiction in receipts. `keys`: each site's `KeyPair.listed` by name."""
    faults = []
    for it in receipts:
        who, signer, key = f"{it.site}, run {it.run}", it.signer, keys.get(it.site, "")[-64:]
        if it.signature and not signer:
            faults.append(f"{who}: it was changed after it was signed")
        elif keys and not key:
            faults.append(f"{who}: it is of no site of the study")
        elif key not in ("", signer):
            faults.append(f"{who}: it is signed by {signer or 'nobody'}, but the site's key is {key}")
    for it, other in itertools.combinations(receipts, 2):
        who = f"{it.site} and {other.site}, run {it.run}"
        if (it.site, it.run, it.study) == (other.site, other.run, other.study):
            faults.append(f"{who}: two receipts of one site; allowed: the latest")
        elif it.site != other.site and it.run == other.run and (it.study, it.sites) != (other.study, other.sites):
            faults.append(f"{who}: they disagree on the study or the number of sites")
    return faults
