"""Growth of relevance judgments: pools drawn from runs, and imports of new judgments.

`pools.request_pool` requests a pool and `imports.import_judgements` accepts new judgments. The scorer executes
everything that reads judgments (`drawing`, `comparing`). `comparing.adopt_qrels` switches a dataset to the new qrels.
"""
