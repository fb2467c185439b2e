"""Base client for the projection of new rows whose columns are divided between the sites."""

from typing import Annotated, ClassVar

from fedkernel.ground import FloatArray, ProtocolError, ShareableError
from fedkernel.protocol import Answers, Done, KernelClient, Request, Shape


class TakeCoordinates(Request[Done]):
    """Request to store the new rows' coordinates at the site, if the study grants them to sites."""

    coordinates: Annotated[FloatArray, Shape("n_new", "k")]


class NewRowsClient(KernelClient):
    """Base of clients whose sites hold columns of new rows and project these rows together."""

    answers: ClassVar[Answers] = (TakeCoordinates,)

    new: FloatArray | None

    def take_coordinates(self, ask: TakeCoordinates) -> Done:
        """Store the coordinates of the new rows, (n_new, k), at the site."""
        if len(ask.coordinates) != (rows := len(self._new_rows())):
            raise ProtocolError(f"coordinates has {len(ask.coordinates)} rows, but there are {rows} new rows")
        self.outputs["embedding"] = ask.coordinates
        return Done()

    def _new_rows(self) -> FloatArray:
        if self.new is None:
            raise ShareableError(f"client {self.client} has no new rows to project")
        return self.new
