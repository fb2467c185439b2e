"""Base client for new rows whose columns are at several sites, which project the rows together."""

from typing import Annotated, ClassVar

from fedkernel.ground import FloatArray, ProtocolError, ShareableError
from fedkernel.protocol import Answers, KernelClient, Receipt, Request, Shape


class TakeCoordinates(Request[Receipt]):
    """Sends the coordinates of the new rows, which stay at the site, if the study grants them."""

    coordinates: Annotated[FloatArray, Shape("n_new", "k")]


class NewRowsClient(KernelClient):
    """Base of clients that take part in projecting new rows."""

    answers: ClassVar[Answers] = (TakeCoordinates,)

    new: FloatArray | None

    def take_coordinates(self, ask: TakeCoordinates) -> Receipt:
        """Keep the coordinates of the new rows, (n_new, k), on the site."""
        if len(ask.coordinates) != (rows := len(self._new_rows())):
            raise ProtocolError(f"there are {rows} new rows, but coordinates of {len(ask.coordinates)}")
        self.outputs["embedding"] = ask.coordinates
        return Receipt()

    def _new_rows(self) -> FloatArray:
        if self.new is None:
            raise ShareableError(f"client {self.client} has no new rows to project")
        return self.new
