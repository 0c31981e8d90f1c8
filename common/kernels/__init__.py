"""The ground under both kernel languages, simt and tiles: errors, source, constants, table."""
