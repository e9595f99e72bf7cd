"""`python -m peacefs` is the command `peacefs`."""

from peacefs.command import main

main()
