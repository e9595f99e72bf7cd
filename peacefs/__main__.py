"""`python -m peacefs` is the command `peacefs`."""

from peacefs.start import main

main()
