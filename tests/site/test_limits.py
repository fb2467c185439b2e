"""What a site lets a request take, whoever asks: bytes of its message, memory, seconds."""

import contextlib
import re
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from allocation import peak_of
from cases import WINE
from command_line import call
from named_sites import LENIENT, refused
from test_consent import rows_of_their_own

from fedkernel import RBF, FKKMeans
from fedkernel.clients.fk_kmeans import FKKMeansClient, MultiplyColumns
from fedkernel.engines.grpc.defaults import MAX_MESSAGE_BYTES
from fedkernel.engines.grpc.frames import Welcome
from fedkernel.engines.grpc.node import Node
from fedkernel.ground import InputError, ProtocolError, RefusedError
from fedkernel.numerics import RandomFeatures
from fedkernel.protocol import encode
from fedkernel.site import Policy, own_policy, resource_limits, site_of_job, within_seconds
from fedkernel.site.client_app import client_app
from fedkernel.site.policy_defaults import USUAL_MESSAGE
from fedkernel.site.resource_limits import USUAL_MEMORY, memory_limit, memory_within

FEATURES = RandomFeatures(kernel=RBF(0.1), n_features=65536)
GIGABYTE = 2**30


def test_a_small_request_that_takes_much_is_refused_before_anything_is_allocated():
    request_ = MultiplyColumns(features=FEATURES, t=1, columns=65536)
    arrays, scalars = encode(request_)
    assert len(scalars["fields"]) < 400
    client = FKKMeansClient(WINE)
    client.most_memory = GIGABYTE // 4
    allowed = r"bytes at this table, but 268,435,456 are allowed \(limits.run.memory\)"

    def refused():
        with pytest.raises(RefusedError, match=rf"MultiplyColumns takes .*{allowed}"):
            client.fit(arrays, scalars)

    assert peak_of(refused)[0] < 1_000_000


def test_what_takes_too_long_ends_and_leaves_nothing_behind(monkeypatch):
    """Also where code swallows what ends it, once or twice."""
    monkeypatch.setattr(resource_limits, "REPEAT_SECONDS", 0.01)
    met, give_up = [], time.monotonic() + 60.0

    def go_on():
        while time.monotonic() < give_up:
            try:
                while time.monotonic() < give_up:
                    pass
            except BaseException as error:
                met.append(error)
                if len(met) == 3:
                    raise

    with pytest.raises(RefusedError, match=r"longer than the 0.05 s allowed \(limits.request.seconds\)"):
        within_seconds(0.05, go_on)
    assert len(met) == 3
    assert within_seconds(None, lambda: 3) == 3
    for _ in range(200):  # end about when their time is up: what interrupts them comes within, or does not come
        with contextlib.suppress(RefusedError):
            assert within_seconds(0.001, lambda: time.sleep(0.001) or "in time") == "in time"
    assert [thread.name for thread in threading.enumerate()].count("limit-of-seconds") == 1


def test_each_thread_has_its_own_limit_and_one_watches_all():
    ended, go_on = {}, threading.Event()

    def compute(name, seconds):
        try:
            ended[name] = within_seconds(seconds, lambda: [go_on.wait(0.001) for _ in range(5000)] and "in time")
        except RefusedError:
            ended[name] = "too long"
            go_on.set()

    threads = [threading.Thread(target=compute, args=arguments) for arguments in (("long", 60.0), ("short", 0.02))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert ended == {"long": "in time", "short": "too long"}
    assert not resource_limits._time_limits._ends


def test_memory_is_limited_while_one_of_several_sites_of_a_process_computes(monkeypatch):
    with memory_within(10**30):  # more than can be counted is no limit
        assert np.ones(1000).sum() == 1000
    before = resource.getrlimit(resource.RLIMIT_AS)
    with memory_within(GIGABYTE):
        with memory_within(2 * GIGABYTE):
            pass
        assert resource.getrlimit(resource.RLIMIT_AS) != before
        with pytest.raises(RefusedError, match=r"limits\.run\.memory"), memory_within(GIGABYTE):
            np.ones(GIGABYTE)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert memory_limit(None) == USUAL_MEMORY
    assert memory_limit(5) == 5
    monkeypatch.setattr(resource_limits, "PROC", Path("/not/there"))
    assert memory_limit(None) is None


def test_a_site_says_its_limits_by_options_or_in_its_policy(tmp_path):
    limits = own_policy({"max-message": 10**6, "max-memory": GIGABYTE, "max-seconds": "60"}).limits
    assert (limits.request.bytes, limits.run.memory, limits.request.seconds) == (10**6, GIGABYTE, 60.0)
    text = "[limits.request]\nseconds = 60\nbytes = 1_000_000\n[limits.run]\nmemory = 1073741824"
    (tmp_path / "site.toml").write_text(text)
    assert own_policy({"policy": str(tmp_path / "site.toml")}).limits == limits
    with pytest.raises(InputError, match="max-seconds and policy are both given"):
        own_policy({"policy": str(tmp_path / "site.toml"), "max-seconds": "1"})
    with pytest.raises(InputError, match=r"limits.request.seconds = '0'.*greater than 0 \(--max-message, "):
        own_policy({"max-seconds": "0"})
    np.save(tmp_path / "own.npy", WINE)
    options = f"--name a --insecure --data {tmp_path}/own.npy --out {tmp_path}/out --max-seconds 0".split()
    text = call("join", "localhost:9", *options, code=2).output
    assert "limits.request.seconds = '0.0'" in " ".join(text.split())


@pytest.mark.parametrize("allowed", [1000, MAX_MESSAGE_BYTES])
def test_no_server_raises_the_size_of_a_message(allowed):
    node = Node(client_app({}, site_of_job), "a", {}, limit=Policy().limits.request.bytes)
    node._adopt_welcome(Welcome(client=0, clients=1, job="", limit=allowed))
    assert node._limit == min(allowed, USUAL_MESSAGE)


@pytest.mark.parametrize(
    ("features", "limit", "sentence"),
    [
        (20_000, {"max-memory": GIGABYTE}, r"'north'.*MultiplyColumns takes 3(,\d+){3} bytes at .* but 1,073,741,824 "),
        (1000, {"max-seconds": "0.0001"}, r"site '\w+'.*takes longer than the 0.0001 s allowed \(limits.request.sec"),
    ],
    ids=["memory", "seconds"],
)
def test_a_run_that_takes_more_than_a_site_allows_ends_with_a_sentence_naming_it(tmp_path, features, limit, sentence):
    nodes = rows_of_their_own(tmp_path, **LENIENT | limit)
    strategy = FKKMeans(2, n_features=features, solver="gram", coreset_size=5)
    assert re.search(sentence, refused(nodes, strategy, ProtocolError))
