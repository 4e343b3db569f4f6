"""What can be wrong with a model, by code: what it means, and what would be right.

The codes are stable: pages, the API and scripts know them. Engines raise the first group as `ModelFailure`; the others
are what the sandbox sees from outside.
"""

from functools import partial

from evaluation.core.problems import ProblemCode

_failure = partial(ProblemCode, about="model")
_CODES = (
    _failure(
        "missing_weights",
        "The checkpoint lacks weights that the architecture needs; they would have been made up at random.",
        "Save the whole model after training, with every tensor that its configuration names, "
        "as `python -m evaluation pack` does.",
    ),
    _failure(
        "not_loadable",
        "The checkpoint passed validation, but the library could not load it.",
        "Load the folder with sentence-transformers or transformers of the published versions, save it again with "
        "`save_pretrained`, and pack it with `python -m evaluation pack`, which loads it as the server does.",
    ),
    _failure(
        "missing_projection",
        "The checkpoint lacks the projection that late interaction compares vectors in; it would have been made up "
        "at random.",
        "Save the whole model as PyLate, sentence-transformers (MultiVectorEncoder) or the Stanford ColBERT code does: "
        "with its Dense module, or with `linear.weight` beside the encoder's weights.",
    ),
    _failure(
        "not_finite_output",
        "The model gave a value that is not a number, or infinite.",
        "Look for overflow (weights saved in float16 often do) and for NaN in the weights; "
        "`python -m evaluation pack` scores 20 texts and shows it.",
    ),
    _failure(
        "constant_output",
        "The model gave the same output for different texts, so its ranking would be arbitrary.",
        "Check that the trained weights were saved, and that the pooling is the one of training.",
    ),
    _failure(
        "wrong_output",
        "The model's output has not the shape that its architecture gives.",
        "Choose the engine that fits the checkpoint, and check its last layers.",
    ),
    _failure(
        "does_not_run",
        "The library raised an error when it ran the model.",
        "Run the same checkpoint on a few texts with the published versions of the libraries; often the tokenizer has "
        "more tokens, or the maximum length more positions, than the weights.",
    ),
    _failure(
        "invalid_parameter",
        "A parameter does not fit this checkpoint.",
        "Send it again with other values; `python -m evaluation retrieve` with the same checkpoint and parameters "
        "says which it takes.",
    ),
    _failure(
        "out_of_memory",
        "The model needed more memory than it may use here, even with the smallest batches.",
        "Use a smaller model, a lesser maximum length, fewer dimensions, or float16 where the engine offers it.",
    ),
    _failure(
        "timed_out",
        "The model ran longer than it may.",
        "Use a smaller model, a lesser depth or maximum length, or a smaller dataset.",
    ),
    _failure(
        "too_much_output",
        "The model wrote more to disk than it may.",
        "Use fewer dimensions, fewer terms or vectors per document, or a smaller dataset.",
    ),
    _failure(
        "too_many_processes",
        "The model started more processes than it may.",
        "A model has no need to start processes; the library's own encoding uses threads.",
    ),
    _failure(
        "no_usable_result",
        "The model ended without a result that could be read.",
        "Send the submission again; if it happens again, tell the operators its id.",
    ),
    _failure(
        "crashed",
        "The process that ran the model ended unexpectedly.",
        "Run the same checkpoint with `python -m evaluation retrieve`, which shows the library's own messages.",
    ),
    _failure(
        "base_missing",
        "`pack` was given an adapter without the model that it is for.",
        "Name the folder of the base model with `--base`.",
    ),
    _failure(
        "peft_missing",
        "`pack` merges adapters with peft, which is not installed.",
        "Install it (`pip install peft`), or send the whole model.",
    ),
    _failure(
        "not_merged",
        "The adapter does not fit the base model.",
        "Name the model that the adapter was trained on with `--base`.",
    ),
    _failure(
        "choice_needed",
        "The model's files leave a choice open.",
        "Give the choice that the message names to `pack`, which keeps it in the archive.",
    ),
)
#: By itself each code; `meaning` and `remedy` are for the model's owner.
MODEL_FAILURES = {str(code): code for code in _CODES}
