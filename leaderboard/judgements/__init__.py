"""How judgements grow: pools drawn from runs, and judgements that come back.

`pools.request_pool` asks for a pool, `imports.import_judgements` takes judgements in; the scorer does what reads
judgements (`drawing`, `comparing`); `comparing.adopt_qrels` lets a dataset be scored on them.
"""
