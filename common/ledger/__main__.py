"""The command `python -m common.ledger`."""

from common.ledger.entries import main

main()
