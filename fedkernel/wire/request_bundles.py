"""Bundles of a resumed run's earlier requests, answered by one hash per reply."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.ground import ProtocolError
from fedkernel.wire import flower_internals
from fedkernel.wire.content import answer_hash

AGAIN = "again"
"""Action of a message that bundles many requests."""

KINDS, ANSWERS = "kinds", "answers"
"""Names of the list of request types in such a message, and of the list of hashes in its reply."""


def bundled(requests: Sequence[tuple[str, RecordDict]]) -> RecordDict:
    """Return a content that bundles requests, each record under its request's number and its name."""
    content = RecordDict({KINDS: ConfigRecord({KINDS: [kind for kind, _ in requests]})})
    for number, (_, request) in enumerate(requests):
        for name, record in request.items():
            content[f"{number} {name}"] = record
    return content


def _requests_in(content: RecordDict) -> Iterator[tuple[str, RecordDict]]:
    """Yield the type and content of each bundled request; ProtocolError if the content is no bundle."""
    kinds = content.config_records.get(KINDS, ConfigRecord()).get(KINDS)
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise ProtocolError("it is asked again, but not what")
    requests: dict[str, RecordDict] = defaultdict(RecordDict)
    for place, record in content.items():
        if place != KINDS:
            number, _, name = place.partition(" ")
            requests[number][name] = record
    if requests.keys() != set(map(str, range(len(kinds)))):
        raise ProtocolError(f"it is asked again {len(kinds)} requests, but {len(requests)} came, or others than these")
    for order, kind in enumerate(kinds):
        if kind == f"{MessageType.QUERY}.{AGAIN}":
            raise ProtocolError("it is asked again to be asked again")
        yield str(kind), requests[str(order)]


def answer_again(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer all bundled requests in order, each as a single message.

    Returns the `fedkernel.wire.answer_hash` of each answer, or the first error. Raises ProtocolError if the message is
    no bundle.
    """
    answers = list[str]()
    for kind, request in _requests_in(message.content if message.has_content() else RecordDict()):
        reply = app(flower_internals.in_place_of(message, kind, request), context)
        if reply.has_error():
            return Message(reply.error, reply_to=message)
        answers.append(answer_hash(reply.content))
    return Message(RecordDict({"config": ConfigRecord({ANSWERS: answers})}), reply_to=message)
