"""Sets of half messages: staged, sealed, decided by epoch; asked about, administered."""
