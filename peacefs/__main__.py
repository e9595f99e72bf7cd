"""Run the command `peacefs` as `python -m peacefs`."""

from peacefs.start import main

main()
