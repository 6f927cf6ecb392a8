"""Stands in for the helpers of Microsoft's repository, which no package carries: only what the suite's configuration asks of them."""
