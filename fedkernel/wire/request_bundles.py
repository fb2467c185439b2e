"""Bundles of a resumed run's earlier requests, answered by one hash per reply."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.ground import ProtocolError
from fedkernel.wire import flower_internals
from fedkernel.wire.content import answer_hash

REPEAT_ACTION = "again"
"""Action in the Flower message type of a bundle of earlier requests."""

KINDS, ANSWERS = "kinds", "answers"
"""Names of the list of request types in a bundle, and of the list of hashes in its reply."""


def bundle_requests(requests: Sequence[tuple[str, RecordDict]]) -> RecordDict:
    """Bundle requests in one message content: each record is named by its request's number and own name."""
    content = RecordDict({KINDS: ConfigRecord({KINDS: [kind for kind, _ in requests]})})
    for number, (_, request) in enumerate(requests):
        for name, record in request.items():
            content[f"{number} {name}"] = record
    return content


def _requests_in(content: RecordDict) -> Iterator[tuple[str, RecordDict]]:
    """Yield the type and content of each bundled request; ProtocolError if the content is no bundle."""
    kinds = content.config_records.get(KINDS, ConfigRecord()).get(KINDS)
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise ProtocolError("the bundle of repeated requests has no list of request types")
    requests: dict[str, RecordDict] = defaultdict(RecordDict)
    for place, record in content.items():
        if place != KINDS:
            number, _, name = place.partition(" ")
            requests[number][name] = record
    if requests.keys() != set(map(str, range(len(kinds)))):
        raise ProtocolError(f"the bundle announces {len(kinds)} requests, but holds {len(requests)} or other ones")
    for order, kind in enumerate(kinds):
        if kind == f"{MessageType.QUERY}.{REPEAT_ACTION}":
            raise ProtocolError("a bundle of repeated requests cannot hold another bundle")
        yield str(kind), requests[str(order)]


def answer_bundle(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer all requests of a bundle in order, and return the `answer_hash` of each answer, or the first error.

    Raises ProtocolError if the message is no bundle.
    """
    answers = list[str]()
    for kind, request in _requests_in(message.content if message.has_content() else RecordDict()):
        reply = app(flower_internals.with_type_and_content(message, kind, request), context)
        if reply.has_error():
            return Message(reply.error, reply_to=message)
        answers.append(answer_hash(reply.content))
    return Message(RecordDict({"config": ConfigRecord({ANSWERS: answers})}), reply_to=message)
