"""A site's policy: what it says of a study, and what it lets pass."""

import pytest
from command_line import call
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from refusals import refusing

from fedkernel import DKPCA, RBF, Linear, PeerVFedPCA, RFKKMeans, VFedPCA
from fedkernel.clients.diskpca import SketchPoints
from fedkernel.clients.dkpca import DKPCAClient, FindLocalEigenpairs
from fedkernel.clients.fk_kmeans import FKKMeansClient, MultiplyColumns, MultiplyGram, SumFeatures
from fedkernel.clients.kmeans_base import CountClusters, SampleCoreset
from fedkernel.clients.vfedpca import Multiply
from fedkernel.ground import InputError, RefusedError
from fedkernel.numerics import RandomFeatures, SubspaceEmbedding
from fedkernel.protocol import AtMost, Forecast, Step, ask, once, repeated
from fedkernel.site import EXEMPT, Policy, approve, check_approved, foreseen, own_policy, read_policy, sign, verdicts
from fedkernel.site.gate import Gate, RunProgress, Totals
from fedkernel.site.policy import ReplySize
from fedkernel.site.raw_request import RawRequest
from fedkernel.site.study_check import check_run
from fedkernel.wire import Job, RunSpec, Study

KERNEL = {"type": "rbf", "gamma": 0.1}
PLAN = (
    once(FindLocalEigenpairs, kernel=RBF(gamma=0.1), n_components=AtMost(20)),
    repeated(3, ask(MultiplyGram, {"p": 50}, features=RandomFeatures(RBF(gamma=0.1), 20), t=AtMost(4))),
)
EIGENPAIRS = RawRequest("FindLocalEigenpairs", {"kernel": KERNEL, "n_components": 20}, {})
SHAPES = {"vectors": (100, 20), "values": (20,)}
SPECTRUM = ReplySize("LocalSpectrum", SHAPES, floats=2020, bytes=17000, seconds=0.5, entries=10_000)


def run(**more):
    table = {
        "id": "r",
        "strategy": "fedkernel.strategies.dkpca:DKPCA",
        "pair": "fedkernel.clients.dkpca:DKPCAClient",
        "sites": ["a", "b", "c"],
        "parameters": {"n_components": 20, "kernel": KERNEL},
        "plan": PLAN,
    }
    return RunSpec(**table | more)


MASKED = run(sums="masked", identities=[f"{site:0128}" for site in range(3)], plan=(once(CountClusters),))


def policy(**tables):
    return Policy.model_validate(tables)


def gate(spec=None, **tables):
    return Gate(policy(**tables), spec or run())


def test_a_study_is_known_by_its_hash_which_one_character_changes():
    study = Study(name="s", runs=[run()])
    assert Study.from_json(study.text).sha256 == study.sha256
    assert Job.from_json(Job(runs=study.runs, study=study).model_dump_json()).study == study
    others = [
        run(seed=1),
        run(parameters={"n_components": 20, "kernel": KERNEL | {"gamma": 0.1000001}}),
        run(sites=["a", "b", "d"]),
        run(plan=PLAN[:1]),
        run(plan=(PLAN[0], PLAN[1].model_copy(update={"times": 4}))),
        run(missing="refuse"),
    ]
    hashes = {Study(name="s", runs=[other]).sha256 for other in others} | {Study(name="t", runs=[run()]).sha256}
    assert len(hashes | {study.sha256}) == len(others) + 2
    study.check_run(run())
    with pytest.raises(InputError, match="two of its runs have the same id"):
        Study.from_json(study.model_copy(update={"runs": [run(), run(seed=1)]}).text)
    with pytest.raises(InputError, match="a number in it is not finite"):
        Study.from_json(study.text.replace("0.1", "Infinity"))
    for other in others:
        with pytest.raises(InputError, match=f"run 'r' differs from the run in study {study.sha256[:12]}"):
            study.check_run(other)


def chosen(most):
    return run(parameters={"n_components": "auto", "max_components": most})


def refusals_of(rules, spec):
    return [verdict for verdict in verdicts(rules, Study(name="s", runs=[spec])) if not verdict.allowed]


ABOVE = "n_components = 21, but must be at most 20"
ONLY_SUMMED = {"messages": {"*": {"only_summed": True}}}
NARROW, TWENTY = {"study": {"kernels": {"rbf": {"gamma": [1e-3, 1e-2]}}}}, {"study": {"n_components": 20}}


@pytest.mark.parametrize(
    ("spec", "tables", "rule", "sentence"),
    [
        (run(sites=["a", "b"], clients=2), {}, "study.min_sites", "run 'r' has 2 sites, but must have at least 3"),
        (run(pair="my_lab:Thief"), {}, "study.pairs", "run 'r' has client my_lab:Thief, which needs --allow"),
        (run(), {"study": {"pairs": ["FKKMeansClient"]}}, "study.pairs", "dkpca:DKPCAClient, which needs --allow"),
        (run(), {"study": {"kernels": {"linear": {}}}}, "study.kernels", "a kernel of type 'rbf' is not allowed"),
        (run(), NARROW, "study.kernels", "a kernel of type 'rbf' has gamma = 0.1, but must be from 0.001 to 0.01"),
        (run(), {"study": {"n_components": 19}}, "study.n_components", "n_components = 20, but must be at most 19"),
        (chosen(21), TWENTY, "study.n_components", ABOVE),
        (chosen(None), TWENTY, "study.n_components", "n_components = auto, without max_components, but must be"),
        (run(parameters={"components": {"n_components": 21}}), TWENTY, "study.n_components", ABOVE),
        # a plan of its own beside harmless parameters
        (run(parameters={}), {"study": {"n_components": 19}}, "study.n_components", "n_components = 20, but"),
        (run(parameters={}), {"study": {"kernels": {"linear": {}}}}, "study.kernels", "'rbf' is not allowed"),
        (run(plan=None), {"study": {"joint_seed": "never"}}, "study.plan", "run 'r' has no request plan"),
        (run(parameters={"share_rows": True}), {}, "limits.total.rows", "run 'r' sends raw rows of each site"),
        (run(), {"messages": {"GramProduct": {}}}, "messages", "no rule for reply LocalSpectrum"),
        (run(), {"messages": {"*": {"never": True}}}, "messages", "LocalSpectrum may never leave"),
        (run(), ONLY_SUMMED, "messages", "in sums only, but it is also read"),
        (run(), {"study": {"sums": "masked"}}, "study.sums", "run 'r' has sums = 'plain', but must have masked ones"),
        (MASKED, {"study": {"sums": "masked"}}, "study.sums", "evaluate = false"),
        (run(), {"messages": {"*": {"times": 2}}}, "messages", "GramProduct is requested up to 3 times, but 2 are"),
    ],
)
def test_a_policy_refuses_a_study_by_a_rule_that_it_names(spec, tables, rule, sentence):
    rules = policy(**tables)
    refused = refusals_of(rules, spec)
    assert {verdict.rule for verdict in refused} == {rule}
    assert sentence in refused[0].text
    with pytest.raises(RefusedError, match=r"\(" + rule.replace(".", r"\.") + r"\)$") as caught:
        check_run(rules, spec)
    assert caught.value.rule == rule


def test_inner_products_of_an_rbf_kernel_s_rows_are_a_linear_kernel_s_to_a_policy():
    pairs = [DKPCA(2, RBF(gamma=0.1), upload=upload) for upload in ("kernel", "inner products")]
    kernel, products = (run(plan=pair.plan(3, 0)) for pair in pairs)
    rules = policy(study={"kernels": {"rbf": {}}})
    assert refusals_of(rules, kernel) == []
    assert "a kernel of type 'linear' is not allowed" in refusals_of(rules, products)[0].text


def test_a_policy_that_names_what_a_study_has_allows_it_and_says_what_it_has_not():
    tables = {
        "study": {"pairs": ["DKPCAClient"], "kernels": {"rbf": {"gamma": [0.1, 0.1]}}, "n_components": 20},
        "messages": {"LocalSpectrum": {"times": 1}, "GramProduct": {"only_summed": True, "times": 3}},
    }
    within = run(parameters={"components": {"n_components": "auto", "max_components": 20}})
    assert refusals_of(policy(**tables), within) == []
    for rules in (policy(), policy(**tables)):
        assert refusals_of(rules, run()) == []
        check_run(rules, run())
    # It may be misspelt.
    rules = policy(messages={"*": {}, "LocalSpektrum": {"never": True}})
    (said,) = [verdict for verdict in verdicts(rules, Study(name="s", runs=[run()])) if verdict.rule == "messages"]
    assert said.text == "all replies allowed; the study has no reply named LocalSpektrum"


SHAPE = (100, 9)
OURS = (*DKPCAClient.answers, *FKKMeansClient.answers)


def said(tables, spec=None, shape=SHAPE, answers=OURS, forecast=None):
    """What is foreseen of a study of one run, by rule."""
    study = Study(name="s", runs=[spec or run()])
    held = foreseen(policy(**tables), study, shape, lambda run: answers, lambda run, cohort: forecast)
    return {verdict.rule: (verdict.allowed, verdict.text) for verdict in held}


def test_sizes_of_replies_are_foreseen_where_the_plan_bounds_them():
    spec = run(plan=PLAN[:1])
    for most, allowed in ((20, True), (19, None)):
        answer, text = said({"messages": {"*": {"columns": most}}}, spec, shape=None)["messages.LocalSpectrum.columns"]
        assert (answer, "20 columns" in text) == (allowed, True)
    for floats, allowed in ((2021, True), (2020, None)):  # 20 vectors of 100 rows, 20 values, and the next
        answer, text = said({"messages": {"*": {"floats": floats}}}, spec)["messages.LocalSpectrum.floats"]
        assert (answer, "2,021 floats" in text) == (allowed, True)
        answer, text = said({"limits": {"run": {"floats": floats}}}, spec)["limits.run.floats"]
        assert (answer, "2,021 floats" in text) == (allowed, True)
        answer, text = said({"limits": {"run": {"floats": floats}}}, spec, shape=None)["limits.run.floats"]
        assert (answer, "without the table's size (--shape or --data)" in text) == (None, True)
    assert "table.min_rows" not in said({}, shape=(20, 9))
    assert said({}, shape=(19, 9))["table.min_rows"] == (False, "the table has 19 rows, but must have at least 20")
    gram = once(MultiplyColumns, features=RandomFeatures(RBF(gamma=0.1), 20), t=1, columns=AtMost(50))
    unknown = said({"messages": {"*": {"floats": 9}}}, run(plan=(gram,)))
    assert unknown["messages.PackedGram.floats"] == (None, "the number of floats cannot be predicted")
    strange = said({"messages": {"*": {"floats": 9}}}, answers=())
    assert {answer for answer, _ in strange.values()} == {None}
    assert strange["guards"][1] == "the guards' verdict on run 'r' cannot be predicted: its client is not fedkernel's"


def test_a_forecast_says_more_and_refuses_where_it_is_exact():
    tables, gram = {"limits": {"run": {"floats": 999}, "total": {"floats": 1000}}}, run(plan=None, align=False)
    exact = said(tables, gram, forecast=Forecast(3, 3000))
    assert exact["limits.run.floats"] == (False, "run 'r' sends 1,000 floats, but 999 are allowed")
    assert exact["limits.total.floats"][0] is True
    alone = said(tables, run(plan=None, align=False, sites=["a"]), forecast=Forecast(3, 3000))["limits.run.floats"]
    assert alone == (False, "run 'r' sends 3,000 floats, but 999 are allowed")
    aligned = said(tables, run(plan=None), forecast=Forecast(3, 3000))["limits.run.floats"]
    assert aligned[0] is None, "fewer rows may be common to all"
    about = said(tables, gram, forecast=Forecast(3, 3000, meaning="at most"))
    assert about["limits.run.floats"][0] is None
    assert "1,000 by its forecast" in about["limits.run.floats"][1]

    def said_of(runs, rule, tables, **more):
        study, forecast = Study(name="s", runs=runs), Forecast(3, 3000)
        held = foreseen(policy(**tables), study, SHAPE, lambda run: (), lambda run, cohort: forecast, **more)
        ((allowed, text),) = [(verdict.allowed, verdict.text) for verdict in held if verdict.rule == rule]
        return allowed, text

    allowed, text = said_of([gram, gram.model_copy(update={"id": "q"})], "limits.total.floats", tables)
    assert (allowed, "sends 2,000 floats, but 1,000" in text) == (False, True)
    seeds = [run(id=f"seed={seed}", seed=seed, plan=None, align=False) for seed in range(3)]
    _, text = said_of(seeds, "limits.run.floats", {"limits": {"run": {"floats": 9}}})
    assert text == "run 'seed=0' (and 2 more) sends 1,000 floats, but 9 are allowed"
    for floats in (0, 1):
        assert said_of([gram], "limits.total.floats", tables, left=Totals(floats=floats))[0] is not bool(floats)
    # a study that needs 1.2 for each run needs that first, and is not refused for all runs' default before
    for own, limit in (({"guards": {"table_share": 0.2}}, 12), ({"limits": {"total": {"share": 2}}}, 2)):
        for before, allowed in ((-1e-9, True), (1e-9, False)):
            left = Totals(share=limit - 1000 / 900 + before)
            answer, text = said_of([gram], "limits.total.share", own, left=left)
            assert (answer, text.endswith(f"; allowed: {limit}")) == (allowed, True)


def test_guards_are_foreseen_by_the_number_of_rows():
    sketch = once(SketchPoints, embedding=SubspaceEmbedding(Linear(), None), columns=40, precision="float64")
    plan = (sketch, once(SampleCoreset, samples=AtMost(26)))
    own = {"answers": (SketchPoints, SampleCoreset)}
    products = run(plan=(repeated(5, ask(Multiply, {"b": 10})),))
    for rows, allowed in ((198, None), (200, True)):  # of which 100 may be common, and 50 be spanned
        held = said({}, products, (rows, 9), answers=(Multiply,))["guards.probed_share"]
        assert held[0] is allowed, held
    own_order = said({}, products.model_copy(update={"align": False}), (100, 9), answers=(Multiply,))
    assert own_order["guards.probed_share"] == (True, "100 rows are enough for all requests of the plan")
    own_rows = run(plan=plan, align=False)
    few = said({}, own_rows, **own)
    assert few["guards.lone_rows"][0] is False
    assert few["guards.lone_rows"][1].startswith("SketchPoints.columns = 40 (point_sketch_size) makes sums of 100 rows")
    assert few["guards.coreset_share"][0] is None
    assert "samples = 26 (coreset_size) of 100 rows; allowed: at most 25" in few["guards.coreset_share"][1]
    assert said({}, run(plan=plan), **own)["guards.lone_rows"][0] is None, "which rows all have is not known yet"
    many = said({}, own_rows, (1000, 9), **own)
    assert {many["guards.lone_rows"][0], many["guards.coreset_share"][0]} == {True}
    assert said({"guards": {"lone_rows": 20, "coreset_share": 0.26}}, own_rows, **own)["guards.lone_rows"][0] is True
    unsized = said({}, own_rows, None, **own)
    rules = ("lone_rows", "coreset_share", "table_share")
    assert {rule: answer for rule, (answer, _) in unsized.items()} == {f"guards.{rule}": None for rule in rules}


def test_a_plan_that_says_other_than_its_client_is_refused_before():
    lying = ask(FindLocalEigenpairs, n_components=2).model_copy(update={"reply": "Done"})
    answer, text = said({}, run(plan=(Step(requests=(lying,)),)))["study.plan"]
    assert answer is False
    assert text == "run 'r': the plan has FindLocalEigenpairs with reply = Done, but its class has LocalSpectrum"


def test_a_study_made_to_break_what_foresees_breaks_nothing():
    kind = ask(SampleCoreset, samples=AtMost(5))
    for fields in ({"samples": "x"}, {"samples": {"at most": "x"}}, {"samples": {}}, {"samples": -1}, {"t": [1]}):
        plan = (Step(requests=(kind.model_copy(update={"fields": fields, "sizes": {"none": (1,)}}),)),)
        said({"messages": {"*": {"floats": 1}}}, run(plan=plan), answers=(SampleCoreset,))
    probing = ask(SumFeatures, features=RandomFeatures(RBF(gamma=0.1), 20), t=1)
    for fields, rule, allowed in (
        ({}, "guards.probed_share", None),
        ({"t": {"at most": 3}}, "guards.probed_share", None),
        ({"_fields_set": 1, "t": "x"}, "study.plan", False),
    ):
        plan = (Step(requests=(probing.model_copy(update={"fields": fields}),), times=60),)
        assert said({}, run(plan=plan, align=False), answers=(SumFeatures,))[rule][0] is allowed


def test_what_left_before_counts_where_a_run_begins_again_and_refuses_no_reply_that_adds_nothing():
    standing = RunProgress(total=Totals(begun=1, rows=50, floats=900))
    after, _ = gate().release(standing, SPECTRUM)
    assert after.total.floats == 2920
    with pytest.raises(RefusedError, match=r"limits\.total\.rows"):
        gate().release(standing, SPECTRUM._replace(rows=1))
    standing = passed(gate(), INTRODUCE, (EIGENPAIRS, SPECTRUM), INTRODUCE, (EIGENPAIRS, SPECTRUM))
    assert (standing.run.begun, standing.total.begun) == (2, 1)
    assert standing.run.floats == standing.total.floats == 4040
    assert standing.replies == {"Introduction": 1, "LocalSpectrum": 1}


def passed(gate, *messages):
    standing = RunProgress()
    for request, size in messages:
        standing = gate.admit(standing, request)
        if size is not None:
            standing, _ = gate.release(standing, size)
    return standing


INTRODUCE = (RawRequest("Introduce", {}, {}), ReplySize("Introduction", {}, bytes=100))


ONCE = [(EIGENPAIRS, SPECTRUM)]
ROWS = [(EIGENPAIRS, SPECTRUM._replace(rows=2))]
WIDTHS = {"study": {"kernels": {"rbf": {"gamma": [1, 2]}}}}
AGAIN = [*ONCE, (RawRequest("Another", {}, {}), None)]
TOO_MUCH = "numbers for each entry of the table would leave in all runs, but 0.2 are allowed"


def asked_with(**fields):
    return [(EIGENPAIRS._replace(fields={"n_components": 2} | fields), SPECTRUM)]


@pytest.mark.parametrize(
    ("tables", "messages", "rule", "sentence"),
    [
        ({}, [INTRODUCE, *ONCE * 2], "plan", "FindLocalEigenpairs came 1 times, as often as"),
        ({}, asked_with(n_components=20), "plan", "kernel = None, but the plan"),
        ({}, [(RawRequest("TakeRows", {}, {}), None)] * 2, "plan", "TakeRows came 1 times"),
        ({"study": {"attempts": 2}}, [INTRODUCE] * 3, "study.attempts", "run 'r' was started 2 times, as often as"),
        ({"study": {"runs": 0}}, [INTRODUCE], "study.runs", "0 runs have begun, as many as the policy allows"),
        ({"study": {"n_components": 19}}, ONCE, "study.n_components", "n_components = 20, but must"),
        ({"study": {"kernels": {"rbf": {}}}}, asked_with(kernel=None), "study.kernels", "type 'linear' is not allowed"),
        (WIDTHS, asked_with(kernel={"type": "rbf", "gamma": "x"}), "study.kernels", "has gamma = x, but must be"),
        (WIDTHS, ONCE, "study.kernels", "a kernel of type 'rbf' has gamma = 0.1, but must be from 1 to 2"),
        ({"limits": {"run": {"floats": 2000}}}, ONCE, "limits.run.floats", "2,020 floats would"),
        ({"limits": {"total": {"bytes": 16999}}}, ONCE, "limits.total.bytes", "17,000 bytes would"),
        ({}, ROWS, "limits.total.rows", "2 rows would leave, but 0 are"),
        ({"limits": {"total": {"share": 0.2}}}, ONCE, "limits.total.share", f"with LocalSpectrum, 0.21 {TOO_MUCH}"),
        ({"guards": {"table_share": 0.02}}, ONCE, "limits.total.share", "but 0.2 are allowed (limits.total.share)"),
        ({}, [(EIGENPAIRS, SPECTRUM._replace(letters=47_981))], "limits.total.share", "5.1 numbers for each"),
        ({"limits": {"run": {"seconds": 0.4}}}, AGAIN, "limits.run.seconds", "0.5 s of computing are used up, of 0.4"),
        ({"messages": {"*": {"floats": 9}}}, ONCE, "messages.LocalSpectrum.floats", "has 2020"),
        ({"messages": {"*": {"columns": 9}}}, ONCE, "messages.LocalSpectrum.columns", "20 columns"),
        ({"messages": {"*": {"rows": 0}}}, ROWS, "messages.LocalSpectrum.rows", ""),
        ({"messages": {"*": {"times": 0}}}, ONCE, "messages.LocalSpectrum.times", "leave 1 times"),
        ({"messages": {"*": {"never": True}}}, ONCE, "messages.LocalSpectrum.never", "may never"),
        (ONLY_SUMMED, ONCE, "messages.LocalSpectrum.only_summed", "in sums only, but it is also read individually"),
    ],
)
def test_a_gate_lets_nothing_pass_that_a_rule_forbids(tables, messages, rule, sentence):
    with pytest.raises(RefusedError, match=rule if rule != "plan" else "plan of run") as caught:
        passed(gate(**tables), *messages)
    assert caught.value.rule == rule
    assert sentence in str(caught.value)


def test_a_signature_approves_the_study_that_it_is_of_and_no_other(tmp_path):
    keys = []
    for name in ("committee", "stranger"):
        keys.append(tmp_path / f"{name}.pem")
        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        keys[-1].write_bytes(pem)
    study, other = Study(name="s", runs=[run()]), Study(name="t", runs=[run()])
    signature = sign(study.sha256, keys[0])
    signer = signature.partition(":")[0]
    rules = policy(study={"approve": "signed", "signers": [signer]})
    node = {"out": str(tmp_path / "out")}
    check_approved(node, rules, Job(runs=study.runs, study=study, signatures=["none", signature]))
    forged = f"{signer}:{sign(study.sha256, keys[1]).partition(':')[2]}"
    for signed, signatures in (
        (study, []),
        (study, [sign(study.sha256, keys[1])]),
        (study, [forged]),
        (study, [f"{signer}:{'0' * 128}"]),
        (other, [signature]),
    ):
        with pytest.raises(RefusedError, match=f"study {signed.sha256[:12]} is not approved") as caught:
            check_approved(node, rules, Job(runs=signed.runs, study=signed, signatures=signatures))
        assert caught.value.rule == "study.approve"
    approve(tmp_path / "out", other.sha256)
    check_approved(node, rules, Job(runs=other.runs, study=other))
    with pytest.raises(RefusedError):
        check_approved({**node, "approve": "ask"}, rules, Job(runs=study.runs, study=study, signatures=[signature]))
    with pytest.raises(InputError, match="is no Ed25519 key without a password"):
        sign(study.sha256, (tmp_path / "out" / "approved"))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        sign(study.sha256, tmp_path / "none.pem")


def test_the_policy_that_init_writes_is_that_of_a_site_without_one(tmp_path):
    path = tmp_path / "site.toml"
    for _ in range(2):
        call("policy", "init", path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["site-2.toml", "site.toml"], "nothing is replaced"
    assert read_policy(path) == Policy() == own_policy({})
    lines = path.read_text().split("\n")
    commented = "\n".join(line.removeprefix("# ") if "=" in line or line.startswith("# [") else line for line in lines)
    path.write_text(commented.replace('"..."', f'"{"0" * 64}"').replace(lines[0], ""))
    whole = read_policy(path)
    assert whole.study.kernels["rbf"].gamma == (0.001, 1.0)
    assert whole.messages["LocalSpectrum"].floats == 100_000
    assert (whole.study.runs, whole.limits.run.floats) == (100, 1_000_000)


def init(folder, study, *more, code=0):
    (folder / "study.json").write_text(study.text)
    own = ("--study", folder / "study.json", *more)
    return call("policy", "init", folder / "own.toml", *own, code=code).output


FOUND = RFKKMeans(2, n_features=10, coreset_size=20)
PAIRS = [DKPCA(2, RBF(gamma=0.05), local_components=5), VFedPCA(2, merge="exact"), PeerVFedPCA(rounds=2), FOUND]


@pytest.mark.parametrize("strategy", PAIRS, ids=type)
def test_a_policy_of_a_study_names_the_replies_that_it_has_and_no_others(tmp_path, strategy):
    own = {"strategy": type(strategy).__name__, "pair": strategy.client.__name__, "plan": strategy.plan_of_run(3, 0)}
    study = Study(name="s", runs=[run(id="trial", parameters=strategy.hyperparameters, **own)])
    init(tmp_path, study, "--shape", "178x13")
    rules = read_policy(tmp_path / "own.toml")
    replies = {planned.reply for step in own["plan"] for planned in step.requests}
    assert rules.messages.keys() == replies - {*EXEMPT}
    if isinstance(strategy, DKPCA):  # 5 vectors of 178 rows, 5 values and what is left out
        assert rules.messages["LocalSpectrum"].floats == 5 * 178 + 5 + 1
    with pytest.raises(RefusedError, match="the policy has no rule for reply"):
        rules.rules_of("DrawnRows")


def test_a_policy_for_a_study_that_does_not_say_what_it_asks_is_none(tmp_path):
    assert "run 'r' has no request plan" in init(tmp_path, Study(name="s", runs=[run(plan=None)]), code=2)
    named = ask(FindLocalEigenpairs, n_components=2).model_copy(update={"reply": "A]\n[limits.total]\nrows"})
    text = init(tmp_path, Study(name="s", runs=[run(plan=(Step(requests=(named,)),))]), code=2)
    assert "must have names of classes" in text
    assert not (tmp_path / "own.toml").exists()
    init(tmp_path, Study(name="s\n[limits.total]", runs=[run(plan=PLAN), run(id="q", plan=(*PLAN, *PLAN))]))
    rules = read_policy(tmp_path / "own.toml")
    own = {"never": False, "only_summed": False, "times": 2, "columns": 20}
    assert rules.messages["LocalSpectrum"].model_dump(exclude_none=True) == own
    assert rules.messages["GramProduct"].only_summed
    assert rules.model_copy(update={"messages": None}) == Policy()
    done = call("policy", "init", tmp_path / "n.toml", "--shape", "3x3", code=2)
    assert "--shape 3x3 needs --study STUDY" in done.output


def test_options_say_what_a_policy_says_and_not_beside_one(tmp_path):
    node = {"min-rows": 5, "min-sites": 2, "share-rows": "true", "allow": "DKPCAClient, my_lab:MyKernel"}
    rules = own_policy(node)
    assert (rules.table.min_rows, rules.study.min_sites, rules.share_rows) == (5, 2, True)
    assert rules.study.pairs == ("DKPCAClient", "my_lab:MyKernel")
    (tmp_path / "site.toml").write_text("")
    assert own_policy({"policy": str(tmp_path / "site.toml")}) == Policy()
    for name, value in node.items():
        with pytest.raises(InputError, match=f"{name} and policy are both given; a policy replaces min-r"):
            own_policy({"policy": "site.toml", name: value})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[table]\nmin_row = 5", "table.min_row is not a known name here (did you mean min_rows? allowed: min_rows,"),
        ("[study]\napprove = 'never'", "study.approve = 'never': input should be 'ask', 'by hash', 'signed' or 'any'"),
        ("[limits]\nfloats = 3", "limits.floats is not a known name here (allowed: request, run, total)"),
        ("[guards]\nleverages = 1", "guards.leverages is not a known name here (did you mean leverage? allowed:"),
        ("[study.kernels]\nrbff = {}", "rbff is not a known name here (did you mean rbf? allowed: "),
        ("[study.kernels]\nrbf = { gamma = [2, 1] }", "gamma = [2, 1], but the first must be at most the second"),
        ("[table", "is not valid TOML: "),
        ("[table]\nsha256 = 'abc'", "table.sha256 = 'abc'"),
    ],
)
def test_a_policy_that_is_none_is_refused_in_one_sentence(tmp_path, text, sentence):
    (tmp_path / "site.toml").write_text(text)
    with refusing(sentence, start=str(tmp_path / "site.toml")):
        read_policy(tmp_path / "site.toml")
