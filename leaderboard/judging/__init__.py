"""How judgements grow: pools drawn from runs, and judgements that come back."""
