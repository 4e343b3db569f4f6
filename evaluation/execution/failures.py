"""Codes of model failures, with their meaning and remedy.

The codes are stable, because pages, the API, and scripts use them. Engines raise the first group as `ModelFailure`; the
sandbox detects the others.
"""

from evaluation.core.problems import ProblemCode

#: Meaning and remedy of each code.
_FAILURES = {
    "missing_weights": ("The checkpoint lacks weights of its architecture, which would have been initialized randomly.",
        "Save the whole model after training, with every tensor of its configuration, as `python -m evaluation pack` "
        "does."),
    "not_loadable": ("The checkpoint passed validation, but the library could not load it.",
        "Load the folder with sentence-transformers or transformers of the published versions, save it again with "
        "`save_pretrained`, and pack it with `python -m evaluation pack`, which loads it as the server does."),
    "missing_projection": ("The checkpoint lacks the projection of late interaction, which would have been initialized "
        "randomly.",
        "Save the whole model like PyLate, sentence-transformers (MultiVectorEncoder), or the Stanford ColBERT code: "
        "with its Dense module, or with `linear.weight` among the encoder's weights."),
    "not_finite_output": ("The model returned an infinite or undefined value.",
        "Look for overflow (frequent with weights saved in float16) and for NaN in the weights; `python -m evaluation "
        "pack` scores 20 texts and shows the problem."),
    "constant_output": ("The model returned the same output for different texts, so its ranking would be arbitrary.",
        "Check that the trained weights were saved and that the pooling is the same as in training."),
    "does_not_run": ("The library raised an error when it ran the model.",
        "Run the same checkpoint on a few texts with the published versions of the libraries; often the tokenizer has "
        "more tokens, or the maximum length more positions, than the weights."),
    "invalid_parameter": ("A parameter does not fit this checkpoint.",
        "Submit it again with other values. `python -m evaluation retrieve` with the same checkpoint and parameters "
        "shows the valid ones."),
    "out_of_memory": ("The model needed more memory than allowed, even with the smallest batches.",
        "Use a smaller model, a smaller maximum length, fewer dimensions, or float16 if the engine supports it."),
    "timed_out": ("The model exceeded the time limit.",
        "Use a smaller model, a smaller depth or maximum length, or a smaller dataset."),
    "too_much_output": ("The model exceeded the limit of disk space.",
        "Use fewer dimensions, fewer terms or vectors per document, or a smaller dataset."),
    "too_many_processes": ("The model exceeded the limit of processes.",
        "Do not start processes in a model; the library's encoding uses threads."),
    "no_usable_result": ("The model ended without a readable result.",
        "Submit it again. If the error recurs, report the submission's id to the operators."),
    "crashed": ("The model's process ended unexpectedly.",
        "Run the same checkpoint with `python -m evaluation retrieve`, which shows the messages of the library."),
    "image_failed": ("The command of the container image ended with an error.",
        "Read its last messages in the log, if the dataset is public, and run the image on your machine without a "
        "network, as docs/containers.md shows."),
    "image_killed": ("The container image was killed (SIGKILL).",
        "Submit the image again. If the image kills its own processes, correct it."),
    "image_no_run": ("The container image ended without writing run.txt to its output folder.",
        "Write the run to `$outputDir/run.txt`, which is `/tira-data/output/run.txt`."),
    "server_silent": ("The server of the container image did not answer in time.",
        "Serve on the port in the variable PORT, on all addresses or 127.0.0.1, and load the model within 15 minutes."),
    "server_answer": ("The server of the container image answered with an error, or with something other than it was "
        "asked for.",
        "Send one vector of finite numbers for each text, always with the same dimension, or one score for each "
        "document. docs/containers.md shows requests and answers."),
    "base_missing": ("`pack` requires the base model of an adapter.",
        "Specify the folder of the base model with `--base`."),
    "peft_missing": ("`pack` needs peft to merge adapters, but it is not installed.",
        "Install it with `pip install peft`, or submit the whole model."),
    "not_merged": ("The adapter does not fit the base model.",
        "Specify the model on which the adapter was trained with `--base`."),
    "choice_needed": ("The model's files are ambiguous.",
        "Pass the option in the message to `pack`, which stores it in the archive."),
}  # fmt: skip
MODEL_FAILURES = {
    code: ProblemCode(code, meaning, remedy, about="model") for code, (meaning, remedy) in _FAILURES.items()
}
