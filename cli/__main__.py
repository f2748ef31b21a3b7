"""`python -m reflexion.cli`."""

from reflexion.cli.app import main

main()
