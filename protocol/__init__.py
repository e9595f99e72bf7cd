"""Wire formats: messages, frames, tokens, errors, ids, checksums and WebHDFS.

Start with `messages`, then `frames` and `handshake`. This package opens no socket and no file. It imports no other
package of the project.
"""
