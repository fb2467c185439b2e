"""The components of every Flower app bundle: they carry out any pair's job, whose runs name strategy and client."""

from fedkernel.coordinator import server_app
from fedkernel.run.answering import client_app
from fedkernel.run.job import Apps
from fedkernel.run.placement import site_of_job

server = server_app()
client = client_app({}, site_of_job)

APPS = Apps(server=f"{__name__}:server", client=f"{__name__}:client")
"""Where they are: what a job for an engine says."""
