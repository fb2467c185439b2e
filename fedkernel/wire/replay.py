"""Messages that hold many earlier requests of a resumed run, and the site's reply with a hash of each answer."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.ground import ProtocolError
from fedkernel.wire import flower
from fedkernel.wire.content import answer_hash

AGAIN = "again"
"""The action of a message that has many requests."""


KINDS, ANSWERS = "kinds", "answers"
"""What a message has of each of these its type, and the reply the answer's hash."""


def bundled(requests: Sequence[tuple[str, RecordDict]]) -> RecordDict:
    """Return the content of a message that has these requests, each record under its number and its name."""
    content = RecordDict({KINDS: ConfigRecord({KINDS: [kind for kind, _ in requests]})})
    for number, (_, request) in enumerate(requests):
        for name, record in request.items():
            content[f"{number} {name}"] = record
    return content


def _requests_in(content: RecordDict) -> Iterator[tuple[str, RecordDict]]:
    """Yield the requests that a message has, each with its type; ProtocolError if it is no such message."""
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
    """Answer all requests that a message has, one after the other, each as if it had come alone.

    Returns what `fedkernel.wire.answer_hash` is of each answer, or the first error in place of one. Raises
    ProtocolError if the message has something else.
    """
    answers = list[str]()
    for kind, request in _requests_in(message.content if message.has_content() else RecordDict()):
        reply = app(flower.in_place_of(message, kind, request), context)
        if reply.has_error():
            return Message(reply.error, reply_to=message)
        answers.append(answer_hash(reply.content))
    return Message(RecordDict({"config": ConfigRecord({ANSWERS: answers})}), reply_to=message)
