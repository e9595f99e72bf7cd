import errno

from peacefs.client.mount.content import Begin, Drop, Fetch, FileContent, Keep, Publish, Send, Stream

room = 100
content = FileContent(published=10)
assert content.write(10, 5, room) == [Begin(Stream.APPEND), Keep(10), Send()], "an append is streamed"
assert content.write(0, 1, room) == [Drop(), Fetch(10), Keep(0)], "any other write needs the whole file here"
assert content.close() == [Publish()]
try:
    content.write(0, room + 1, room)
except OSError as refused:
    assert refused.errno == errno.EFBIG
else:
    raise AssertionError("a write beyond the stage's limit was taken")
