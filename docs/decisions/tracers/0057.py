from peacefs.protocol.messages import Done, KeepChunks, Packet
from peacefs.runtime import tracing
from peacefs.runtime import effects as fx
from peacefs.protocol.trace_context import TraceContext, context_of, serving, stamped


class Span:
    id = "00000000000000aa"

    def __init__(self):
        self.phases = []

    def phase(self, name, begin_ns, end_ns, attributes):
        self.phases.append((name, attributes["count"]))

    def end(self, error=""):
        pass


class Tracer:
    def begin(self, name, context, attributes):
        return span


def participant():
    for _ in range(2):
        yield from fx.sleep(0)
    yield from fx.call(KeepChunks("token", []), Done)


span, asked = Span(), []
tracing.install(Tracer())
with serving(TraceContext("nightly")), tracing.spanning("work"):
    steps = tracing.observed(participant())
    effect = next(steps)
    while True:
        if isinstance(effect, fx.Call):
            asked.append(stamped(effect.message))
        try:
            effect = steps.send(Done() if isinstance(effect, fx.Call) else None)
        except StopIteration:
            break
assert span.phases == [("sleep", 2), ("KeepChunks", 1)]
assert (asked[0].trace, asked[0].span) == ("nightly", span.id)
assert context_of(asked[0]).id == "nightly"
with serving(TraceContext("nightly")):
    packet = Packet(0, b"")
    assert stamped(packet) is packet
