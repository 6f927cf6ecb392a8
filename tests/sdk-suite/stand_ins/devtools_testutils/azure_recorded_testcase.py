"""The credential of the account under test: its key, in place of one of Entra ID."""

import os


def get_credential(**_):
    return os.environ["ACCOUNT_KEY"]
