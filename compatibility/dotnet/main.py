"""Runs the checks with Microsoft.Azure.Cosmos for .NET, called from Python."""

import sys

import harness

# Importing a file of checks registers them.
import checks_account  # noqa: F401
import checks_items  # noqa: F401
import checks_batches  # noqa: F401
import checks_queries  # noqa: F401
import checks_feed  # noqa: F401
import checks_processor  # noqa: F401

if __name__ == "__main__":
    sys.exit(harness.run())
