"""The components of every Flower app bundle: they carry out any pair's job, whose runs name strategy and client."""

from fedkernel.run.server_app import server_app
from fedkernel.site import site_of_job
from fedkernel.site.client_app import client_app
from fedkernel.wire import Apps

server = server_app()
client = client_app({}, site_of_job)

APPS = Apps(server=f"{__name__}:server", client=f"{__name__}:client")
"""Where they are: what a job for an engine says."""
