"""Server and client app of every Flower app bundle, for any strategy and client named by a job's runs."""

# First the package, then its modules: a thread that imports a module before its package, and one that imports the
# package, which imports that module, wait for each other; Flower's simulation has two threads that import.
import fedkernel.ground  # noqa: F401
from fedkernel.run.server_app import server_app
from fedkernel.site import site_of_job
from fedkernel.site.client_app import client_app
from fedkernel.wire import Apps

server = server_app()
client = client_app({}, site_of_job)

APPS = Apps(server=f"{__name__}:server", client=f"{__name__}:client")
"""Addresses of the two apps, for a job."""
