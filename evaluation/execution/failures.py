"""Codes of model failures, with their meaning and remedy.

The codes are stable, because pages, the API, and scripts use them. Engines raise the first group as `ModelFailure`; the
sandbox detects the others.
"""

from functools import partial

from evaluation.core.problems import ProblemCode

_failure = partial(ProblemCode, about="model")
_CODES = (
    _failure(
        "missing_weights",
        "The checkpoint lacks weights of its architecture, which would have been initialized randomly.",
        "Save the whole model after training, with every tensor of its configuration, "
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
        "The checkpoint lacks the projection of late interaction, which would have been initialized randomly.",
        "Save the whole model like PyLate, sentence-transformers (MultiVectorEncoder), or the Stanford ColBERT code: "
        "with its Dense module, or with `linear.weight` among the encoder's weights.",
    ),
    _failure(
        "not_finite_output",
        "The model returned an infinite or undefined value.",
        "Look for overflow (frequent with weights saved in float16) and for NaN in the weights; "
        "`python -m evaluation pack` scores 20 texts and shows the problem.",
    ),
    _failure(
        "constant_output",
        "The model returned the same output for different texts, so its ranking would be arbitrary.",
        "Check that the trained weights were saved and that the pooling is the same as in training.",
    ),
    _failure(
        "wrong_output",
        "The shape of the model's output does not match its architecture.",
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
        "Submit it again with other values. `python -m evaluation retrieve` with the same checkpoint and parameters "
        "shows the valid ones.",
    ),
    _failure(
        "out_of_memory",
        "The model needed more memory than allowed, even with the smallest batches.",
        "Use a smaller model, a smaller maximum length, fewer dimensions, or float16 if the engine supports it.",
    ),
    _failure(
        "timed_out",
        "The model exceeded the time limit.",
        "Use a smaller model, a smaller depth or maximum length, or a smaller dataset.",
    ),
    _failure(
        "too_much_output",
        "The model exceeded the limit of disk space.",
        "Use fewer dimensions, fewer terms or vectors per document, or a smaller dataset.",
    ),
    _failure(
        "too_many_processes",
        "The model exceeded the limit of processes.",
        "Do not start processes in a model; the library's encoding uses threads.",
    ),
    _failure(
        "no_usable_result",
        "The model ended without a readable result.",
        "Submit it again. If the error recurs, report the submission's id to the operators.",
    ),
    _failure(
        "crashed",
        "The model's process ended unexpectedly.",
        "Run the same checkpoint with `python -m evaluation retrieve`, which shows the messages of the library.",
    ),
    _failure(
        "image_failed",
        "The command of the container image ended with an error.",
        "Read its last messages in the log, if the dataset is public, and run the image on your machine without a "
        "network, as docs/containers.md shows.",
    ),
    _failure(
        "image_killed",
        "The container image was killed (SIGKILL).",
        "Submit the image again. If the image kills its own processes, correct it.",
    ),
    _failure(
        "image_no_run",
        "The container image ended without writing run.txt to its output folder.",
        "Write the run to `$outputDir/run.txt`, which is `/tira-data/output/run.txt`.",
    ),
    _failure(
        "server_silent",
        "The server of the container image did not answer in time.",
        "Serve on the port in the variable PORT, on all addresses or 127.0.0.1, and load the model within 15 minutes.",
    ),
    _failure(
        "server_answer",
        "The server of the container image answered with an error, or with something other than it was asked for.",
        "Send one vector of finite numbers for each text, always with the same dimension, or one score for each "
        "document. docs/containers.md shows requests and answers.",
    ),
    _failure(
        "base_missing",
        "`pack` requires the base model of an adapter.",
        "Specify the folder of the base model with `--base`.",
    ),
    _failure(
        "peft_missing",
        "`pack` needs peft to merge adapters, but it is not installed.",
        "Install it with `pip install peft`, or submit the whole model.",
    ),
    _failure(
        "not_merged",
        "The adapter does not fit the base model.",
        "Specify the model on which the adapter was trained with `--base`.",
    ),
    _failure(
        "choice_needed",
        "The model's files are ambiguous.",
        "Pass the option in the message to `pack`, which stores it in the archive.",
    ),
)
#: Codes of model failures; `meaning` and `remedy` are addressed to the model's owner.
MODEL_FAILURES = {str(code): code for code in _CODES}
