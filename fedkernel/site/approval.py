"""Approval of studies at a site: by hash in a file, or by a trusted signer's Ed25519 signature."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedkernel.ground import InputError, OwnFileError, RefusedError, open_for_owner, read_secret
from fedkernel.protocol import Guards
from fedkernel.site.policy import Approval, Policy
from fedkernel.wire import HASH_DIGITS, Job

APPROVED = "approved"
"""Name of the site's file of approvals: lines of a study's SHA-256, the time, and perhaps a `SHARE`."""

SHARE = "table_share="  # prefix of a study's own limit on the disclosure ratio in such a line

UNREADABLE = "the site cannot read its list of approved studies"


def check_hash(sha256: str) -> str:
    """Return a study's hash. Raises InputError unless it has all 64 digits, since studies may share the first ones."""
    if re.fullmatch(r"[0-9a-f]{6,63}", sha256):
        raise InputError(
            f"study = {sha256!r} has {len(sha256)} of 64 digits, which other studies may share; allowed: all 64, from "
            "the last line of `fedkernel study show` or the log of `fedkernel join`, or the study's file for "
            "`fedkernel study approve`"
        )
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise InputError(f"study = {sha256!r}, but must be the SHA-256 of a study, 64 hexadecimal digits")
    return sha256


def approve(folder: Path, sha256: str, table_share: float | None = None) -> None:
    """Append a study's hash to a site's approvals, optionally with a `Guards.table_share` for this study only."""
    check_hash(sha256)
    share = "" if table_share is None else f" {SHARE}{Guards(table_share=table_share).table_share!r}"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    line = f"{sha256} {datetime.now(UTC).isoformat(timespec='seconds')}{share}\n"
    with open(folder / APPROVED, "a", encoding="ascii", opener=open_for_owner) as file:
        file.write(line)


def is_approved(folder: Path, sha256: str) -> bool:
    """Return whether a study's hash is among a site's approvals. Raises OwnFileError if these cannot be read."""
    return bool(_approvals(folder, sha256))


def approved_policy(policy: Policy, folder: Path, sha256: str) -> Policy:
    """Return a site's policy, with `table_share` replaced by that of the study's latest approval, if any."""
    words = [word for line in _approvals(folder, sha256)[-1:] for word in line if word.startswith(SHARE)]
    try:
        share = float(words[0].removeprefix(SHARE)) if words else policy.guards.table_share
        return policy.model_copy(update={"guards": replace(policy.guards, table_share=share)})
    except (InputError, ValueError):
        raise OwnFileError(UNREADABLE, f"{folder / APPROVED}: {words[0]!r} is no number above 0") from None


def _approvals(folder: Path, sha256: str) -> list[list[str]]:
    """Return the words of each line that approves this study."""
    try:
        lines = (folder / APPROVED).read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OwnFileError(UNREADABLE, f"{folder / APPROVED} cannot be read: {error.strerror}") from None
    return [words for line in lines if (words := line.split(" "))[0] == sha256]


def not_approved(sha256: str) -> str:
    """Return the error text for a study that is not approved."""
    return f"study {sha256[:HASH_DIGITS]} is not approved; to approve it: fedkernel study approve {sha256} --out FOLDER"


def signature_of(private: Ed25519PrivateKey, signed: bytes) -> str:
    """Sign some bytes, and return ``PUBLIC_KEY:SIGNATURE`` in hexadecimal."""
    return f"{private.public_key().public_bytes_raw().hex()}:{private.sign(signed).hex()}"


def signer_of(signature: str, signed: bytes) -> str:
    """Return the public key in a result of `signature_of`, or an empty text if the signature does not verify."""
    public, _, digits = signature.partition(":")
    with suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(digits), signed)
        return public
    return ""


def _signed(sha256: str) -> bytes:
    """Return the bytes of a study that its signer signs."""
    return f"fedkernel study {sha256}".encode()


def sign(sha256: str, key: Path) -> str:
    """Sign a study's hash with the Ed25519 key in a PEM file. The result has the form of `signature_of`."""
    try:
        private = load_pem_private_key(read_secret(key), password=None)
    except OSError as error:
        raise InputError(f"{key} cannot be read: {error.strerror}") from None
    except (TypeError, ValueError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise InputError(f"{key} is no Ed25519 key without a password; openssl genpkey -algorithm ed25519 writes one")
    return signature_of(private, _signed(check_hash(sha256)))


def is_signed(sha256: str, signatures: Iterable[str], signers: Sequence[str]) -> bool:
    """Return whether a signature of this study verifies under one of the trusted signers' public keys."""
    return any(text[:64] in signers and signer_of(text, _signed(sha256)) in signers for text in signatures)


def check_approved(node: Mapping[str, Any], policy: Policy, job: Job) -> None:
    """Raise RefusedError unless a job's study is approved, or the policy approves any study.

    The node's ``approve`` overrides the policy's: ``any``, ``ask``, ``by hash``, ``signed``, or a study's hash.
    """
    study = job.study
    rule, approval = "study.approve", str(node.get("approve", policy.study.approve))
    if approval not in get_args(Approval):
        check_hash(approval)
    if approval == "any":
        return
    if study is None:
        raise RefusedError(rule, f"the job has no study to approve ({rule})")
    if approval == "signed" and is_signed(study.sha256, job.signatures, policy.study.signers):
        return
    if study.sha256 != approval and not is_approved(Path(str(node["out"])).expanduser(), study.sha256):
        raise RefusedError(rule, f"{not_approved(study.sha256)} ({rule})")
