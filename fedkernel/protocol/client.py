"""Base class of clients, the code at a site that answers requests about the site's own data."""

import inspect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt
import pydantic
from flwr.client import NumPyClient

from fedkernel.data import Table, TableLike, check_matrix
from fedkernel.ground import OwnFileError, ProtocolError, RefusedError, ShareableError, explain, generator, shortened
from fedkernel.protocol.constraints import MAX_ENTRY
from fedkernel.protocol.encoding import Scalar, decode, encode, wire_of
from fedkernel.protocol.guards import Guards, blocks_of
from fedkernel.protocol.messages import Reply, Request
from fedkernel.protocol.privacy import MOST_ROWS, Privacy, check_noise

Array = npt.NDArray[Any]
Answers = tuple[type[Request[Any]], ...]
DerivedT = TypeVar("DerivedT")


class KernelClient(NumPyClient):
    """Base class of all clients: decodes a request, calls the method for its class, and encodes the reply.

    A subclass lists its requests, ``answers = (SomeRequest, ...)``, and has one method for each, its own or inherited:
    ``def anything(self, ask: SomeRequest) -> SomeReply``. The argument's annotation is the dispatch, also for an
    override without annotations. So a class's body lists all its requests, and a base class adds none. `fit` follows
    NumPyClient's contract, so a client can be called directly with the output of `fedkernel.protocol.encode`.

    - `X` (n_m, d_m): the site's own table, samples as rows, or any other input of `table`.
    - `new` (n_new, d_m): rows that came after training, for protocols that project new rows.
    - `client`, `seed`: its number, and the run's seed; both, with a purpose, decide every random number of the site.
    - `memory`: arrays kept from round to round (on every engine), as `State` classes save and load them.
    - `share_rows`: rows of the table may leave the site unchanged, in replies and in letters.
    - `guards`: checks of every request; None, as at simulated sites: no checks.
    - `noise_key`: key that noise is drawn with, see `fedkernel.ground.noise`; empty: the operating system's generator.
    - `y` (n_m,): labels of the rows, given only to a class that needs them.
    - `earlier`: given a run's id, returns the clusters (n_m,) that the site kept of its rows there.
    - `derived`: cache of values computed from the table alone (`cached`), shared by clients of this class and table.

    - `privacy`: bounds of the rows in sums that get noise; None: no noise.

    `outputs`: results that stay on the site, where the engine stores them. `request`, `reply`: the last ones.
    """

    def __init__(
        self,
        X: TableLike,
        *,
        new: TableLike | None = None,
        client: int = 0,
        seed: int = 0,
        memory: MutableMapping[str, Array] | None = None,
        share_rows: bool = False,
        guards: Guards | None = None,
        noise_key: bytes = b"",
        y: Array | None = None,
        earlier: Callable[[str], Array] | None = None,
        derived: MutableMapping[str, Any] | None = None,
        privacy: Privacy | None = None,
    ) -> None:
        self.derived: MutableMapping[str, Any] = {} if derived is None else derived
        self.X: Any = self.cached("table", lambda: self.table(X, f"the data of client {client}"))
        self.new = None if new is None else self.table(new, f"the new rows of client {client}")
        self.client = client
        self.seed = seed
        self.memory: MutableMapping[str, Array] = {} if memory is None else memory
        self.may_share_rows = share_rows
        self.guards = guards
        self.noise_key = noise_key
        self.privacy = privacy
        if privacy is not None and self.X.shape[0] > MOST_ROWS:
            rows = f"client {client} has {self.X.shape[0]:,} rows"
            raise ShareableError(f"{rows}, but with noise on sums a site has at most {MOST_ROWS:,}")
        self.outputs: dict[str, Array] = {}
        self._earlier = earlier
        if self.needs_labels:
            self.y = self._checked_labels(y)

    request: Request[Any]
    reply: Reply

    most_memory: int | None = None
    """Limit in bytes of the memory that a request takes by its fields; None: no limit."""

    entries: int | None = None
    """Entries of the site's own table, if the client works with another, such as a prepared one."""

    apart: int = 0
    """Number of rows by which the run differs from another at the site; 0: none was on other rows."""

    answers: ClassVar[Answers] = ()
    """All requests that the class answers; every class lists its own."""

    needs_labels: ClassVar[bool] = False
    """The class uses labels of the rows, ``self.y``; they leave the site only in its replies."""

    y: Array

    handlers: ClassVar[dict[str, tuple[type[Request[Any]], str]]] = {}
    """Request class and answering method, by the request's name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find the method that answers each request; TypeError if `answers` and the methods do not fit together."""
        super().__init_subclass__(**kwargs)
        public = (name for name in dir(cls) if not name.startswith("_") and not hasattr(KernelClient, name))
        methods = {name: request for name in public if (request := _request_of(cls, name)) is not None}
        listed = vars(cls).get("answers")
        if listed is None:
            if methods:
                raise TypeError(f"{cls.__name__} has no list of its requests: {_advice(methods.values())}")
            listed = ()
        if not isinstance(listed, tuple):
            raise TypeError(f"{cls.__name__}: answers must be a tuple: {_advice([listed])}")
        if missing := [name for name in methods if name in vars(cls) and methods[name] not in listed]:
            raise TypeError(
                f"{cls.__name__}.{missing[0]} answers {methods[missing[0]].__name__}, which `answers` does not list: "
                + _advice([*listed, *(methods[name] for name in missing)])
            )
        cls.handlers = {request.__name__: (request, name) for name, request in methods.items() if request in listed}
        answered = dict(cls.handlers.values())
        if doubled := [name for name, request in methods.items() if answered.get(request, name) != name]:
            both = f"{doubled[0]} and {answered[methods[doubled[0]]]} both answer {methods[doubled[0]].__name__}"
            raise TypeError(f"{cls.__name__}: {both}, but one method must")
        if unknown := [request.__name__ for request in listed if request.__name__ not in cls.handlers]:
            method = f"def anything(self, ask: {unknown[0]}) -> ..."
            raise TypeError(f"{cls.__name__}: answers lists {unknown[0]}, but no method answers it: {method}")

    @staticmethod
    def table(X: Any, what: str) -> Any:
        """Check a site's rows, and return them in the client's form: a dense matrix.

        A client that reads its rows block by block returns a `Table` instead (`fedkernel.data.as_table`), which may be
        sparse or on disk. This class uses only the result's `shape`; `table` must accept its own result.
        """
        return check_matrix(X, what)

    def cached(self, name: str, make: Callable[[], DerivedT]) -> DerivedT:
        """Return a value that depends on the table alone, from a cache that may be lost. The value is never changed."""
        if name not in self.derived:
            self.derived[name] = make()
        value: DerivedT = self.derived[name]
        return value

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the client's random generator for this run and one purpose, in the same state at every call."""
        return generator(purpose, self.seed, self.client)

    def labels_of(self, run: str) -> Array:
        """Return the clusters (n_m,) of the site's rows in an earlier run, which the site has kept."""
        if self._earlier is None:
            raise ShareableError(f"client {self.client} has no clusters of an earlier run to compare with")
        return self._earlier(run)

    def _checked_labels(self, y: Array | None) -> Array:
        name, rows = type(self).__name__, self.X.shape[0]
        if y is None:
            allowed = "fit(y = [...]), data with labels, and at a site join --label"
            raise ShareableError(f"client {self.client} has no labels, which {name} needs; allowed: {allowed}")
        if np.shape(y) != (rows,):
            raise ShareableError(f"y of client {self.client} has shape {np.shape(y)}; allowed: ({rows},), one per row")
        return np.asarray(y)

    def _check_consent(self, message: object, rows: int) -> None:
        """Raise ShareableError if rows would leave unchanged without the site's consent."""
        if rows and not self.may_share_rows:
            raise ShareableError(
                f"{message} would send {rows} of the {self.X.shape[0]} rows of client {self.client} unchanged; allowed "
                "only with join --share-rows at the site or, for simulated sites, share_rows of the strategy"
            )

    def _check_memory(self, request: Request[Any]) -> None:
        """Raise RefusedError if a request surely exceeds the memory limit, before anything is allocated for it."""
        if self.most_memory is not None and (takes := 8 * request.memory_floats(*self.X.shape)) > self.most_memory:
            rule = "limits.run.memory"
            text = f"{type(request).__name__} takes {takes:,} bytes at this table, but {self.most_memory:,} are allowed"
            raise RefusedError(rule, f"{text} ({rule})")

    def get_properties(self, config: dict[str, Scalar]) -> dict[str, Scalar]:
        """Return the client's number and its table's sizes to the coordinator, and nothing else."""
        rows, columns = self.X.shape
        new = 0 if self.new is None else self.new.shape[0]
        return {"client": self.client, "rows": rows, "columns": columns, "new_rows": new}

    def _respond(
        self, answer: Callable[[Request[Any]], Reply], request: Request[Any], config: Mapping[str, Scalar]
    ) -> Reply:
        """Call the method that answers a request; subclasses wrap this call to act on every request."""
        return answer(request)

    def own_entries(self) -> int:
        """Return the number of entries of the site's own table. In sparse ones without noise, nonzero entries count."""
        if self.entries:
            return self.entries
        table, (rows, columns) = self.X, self.X.shape
        if not (isinstance(table, Table) and table.sparse) or self.privacy is not None:
            return int(rows * columns)
        stored = (int(np.count_nonzero(block.data)) for block in blocks_of(table))
        return max(1, self.cached("stored entries", lambda: sum(stored)))

    def _share_apart(self) -> float:
        """Return `apart` as a share of the rows, at most 1. It is 1 without another run, and if sums have noise."""
        return min(1.0, self.apart / self.X.shape[0]) if self.apart and self.privacy is None else 1.0

    def _has_larger(self, bound: float) -> bool:
        """Return whether a number in the table exceeds a bound in magnitude."""
        return any(float(abs(block).max()) > bound for block in blocks_of(self.X))

    def _where(self, config: Mapping[str, Scalar]) -> str:
        return f"{type(self).__name__}, round {shortened(str(config.get('round', '?')))}, client {self.client}"

    def fit(
        self, parameters: Sequence[Array], config: Mapping[str, Scalar]
    ) -> tuple[list[Array], int, dict[str, Scalar]]:
        """Answer one request, and return the reply's arrays, the site's number of rows, and the reply's scalars.

        `parameters`: the request's arrays, as `encode` orders them. `config`: its scalars; ``round`` (optional) is
        named in errors, ``wire`` (optional) is the arrays' precision. Raises ProtocolError if the request is unknown or
        malformed, or if the reply would not fit it; ShareableError if the request does not fit the site's data.
        """
        name = config.get("message")
        if not isinstance(name, str) or name not in self.handlers:
            text = f"{shortened(repr(name))} is no request of this client; it answers {sorted(self.handlers)}"
            raise ProtocolError(f"{self._where(config)}: {text}")
        kind, method = self.handlers[name]
        if self.privacy is not None:
            check_noise(kind)
        try:
            request = decode(kind, parameters, config, wire := wire_of(config))
        except ProtocolError as error:
            raise ProtocolError(f"{self._where(config)}: request {error}") from None
        self._check_memory(request)
        if self.guards is not None:
            self.guards.check(request, self.X, self.memory, widths=self.privacy is None)
        answer: Callable[[Request[Any]], Reply] = getattr(self, method)
        try:
            reply = self._respond(answer, request, config)
        except pydantic.ValidationError as error:
            outline = f"{self._where(config)}: the reply to {name} would be malformed"
            if self.privacy is None and self._has_larger(MAX_ENTRY):
                raise ShareableError(
                    f"{self._where(config)}: the table has numbers beyond {MAX_ENTRY:g}, so the reply to {name} may be "
                    "too large; allowed: smaller ones, as in a larger unit"
                ) from None
            raise ProtocolError(f"{outline}: {explain(error, quote=False)}") from None
        if not isinstance(reply, request.reply_type):
            must = f"must be {request.reply_type.__name__}, not {type(reply).__name__}"
            raise ProtocolError(f"{self._where(config)}: the reply to {name} {must}")
        try:
            if self.privacy is None:  # a refusal would have no noise
                request.check_reply(reply)
        except ValueError as error:
            outline = f"{self._where(config)}: the reply to {name} would not fit the request"
            if self.guards is None:
                raise ProtocolError(f"{outline}: {error}") from None
            raise OwnFileError(outline, f"{outline}: {error}") from None  # the error quotes numbers of the reply
        self._check_consent(name, reply.disclosed)
        if self.guards is not None:
            self.guards.check_sent(name, reply.floats_by_reader, self.own_entries(), self.memory, self._share_apart())
        self.request, self.reply = request, reply
        arrays, scalars = encode(reply, wire)
        return arrays, self.X.shape[0], scalars


def _request_of(cls: type, name: str) -> type[Request[Any]] | None:
    """Return the request class that a method answers: the type of its only annotated argument, perhaps inherited."""
    for owner in cls.__mro__:
        method = vars(owner).get(name)
        hints = get_type_hints(method) if inspect.isfunction(method) else {}
        if requests := [hint for argument, hint in hints.items() if argument != "return"]:
            is_request = len(requests) == 1 and isinstance(requests[0], type) and issubclass(requests[0], Request)
            return requests[0] if is_request else None
    return None


def _advice(requests: Iterable[type[Request[Any]]]) -> str:
    names = list(dict.fromkeys(request.__name__ for request in requests))
    return f"write answers = ({', '.join(names)}{',' if len(names) == 1 else ''})"
