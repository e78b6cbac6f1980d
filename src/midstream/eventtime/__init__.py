"""Event time: windows, watermarks and what goes by them. Knows no Spark."""
