"""A SuperLink with its SuperNodes on this machine, and how all of it ends."""

import os
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedkernel.engines import ray
from fedkernel.engines.flwr_command import QUIET, SCRIPTS, flwr_in

NAME = "dep"


class Network:
    """Where the processes are: each has a folder with a home of its own, and runs in that folder."""

    def __init__(self, folder, secure):
        self.folder, self.secure, self.port = folder, secure, ray._free_port()
        self.user = {"FLWR_HOME": str(folder / "user")}
        self.homes = []
        self.trust = ["--root-certificates", str(folder / "certs" / "ca.crt")] if secure else ["--insecure"]

    @property
    def flwr(self):
        return flwr_in(self.folder, self.user)

    @contextmanager
    def process(self, name, *command):
        """Run a command in a folder of its own until it is left, and everything it started."""
        place = self.folder / name
        home = place / "home"
        home.mkdir(parents=True)
        self.homes.append(home)
        own = {"FLWR_HOME": str(home), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
        with (place / "log").open("wb") as sink:
            process = subprocess.Popen(
                [SCRIPTS / command[0], *command[1:]],
                cwd=place,
                env={**os.environ, **QUIET, **own},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            ray._stop(process, home)

    def superlink(self):
        served = self.folder / "certs" / "server"
        secured = ["--ssl-ca-certfile", served / "ca.crt", "--ssl-certfile", served / "tls.crt"]
        secured += ["--ssl-keyfile", served / "tls.key", "--enable-supernode-auth", "--database", "state.db"]
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        return self.process("superlink", "flower-superlink", *where, *(secured if self.secure else ["--insecure"]))

    def supernode(self, name, config):
        command = ["--superlink", f"127.0.0.1:{self.port}", "--port", str(ray._free_port()), "--node-config", config]
        if self.secure:
            key = self.folder / f"{name}.key"
            subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True)
            answer = self.flwr("supernode", "register", f"{key}.pub", NAME, "--format", "json")
            assert answer["success"], answer
            command += ["--auth-supernode-private-key", key]
        return self.process(name, "flower-supernode", *self.trust, *command)

    def wait_for(self, nodes, seconds=150):
        give_up = time.monotonic() + seconds
        statuses = []
        while time.monotonic() < give_up and statuses.count("online") < nodes:
            answer = self.flwr("supernode", "list", NAME, "--format", "json")
            statuses = [node["status"] for node in answer.get("nodes", [])]
        assert statuses.count("online") == nodes, self.logs()

    def logs(self):
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*/log"))


@contextmanager
def network(folder: Path, nodes: dict[str, str], *, secure: bool):
    """Run a SuperLink and a SuperNode for each name, given its configuration."""
    network = Network(folder, secure)
    home = folder / "user"
    home.mkdir(parents=True)
    trust = f'root-certificates = "{folder}/certs/ca.crt"' if secure else "insecure = true"
    address = f"127.0.0.1:{network.port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{address}"\n{trust}\n'
    )
    if secure:
        hosts = ["--server", "localhost", "--server", "127.0.0.1"]
        subprocess.run([SCRIPTS / "fedkernel", "certs", folder / "certs", *hosts], check=True, capture_output=True)
    try:
        with ExitStack() as running:
            running.enter_context(network.superlink())
            give_up = time.monotonic() + 150
            while not network.flwr("supernode", "list", NAME, "--format", "json").get("success"):
                assert time.monotonic() < give_up, network.logs()
            for name, config in nodes.items():
                running.enter_context(network.supernode(name, config))
            network.wait_for(len(nodes))
            yield network
    finally:
        left = {str(home): family for home in network.homes if (family := ray._descendants(home, {}))}
        assert not left
