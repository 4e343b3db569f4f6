"""Every code that a checkpoint may be refused with, or remarked on, and what would be right."""

from collections.abc import Mapping

from evaluation.archives.compression import describe_bytes
from evaluation.checkpoints.limits import MOST_WEIGHTS

PACK_COMMAND = "python -m evaluation pack FOLDER"
_PACK = f"`{PACK_COMMAND}` makes such an archive from the folder, on your machine."

CODES: Mapping[str, str] = {
    # The archive
    "archive_kind": f"Send a zip or a tar compressed with zstd (.tar.zst). {_PACK}",
    "compression": f"Pack it again, and check that it was sent whole. {_PACK}",
    "member_kind": f"Pack regular files only: no links, devices, sparse files or passwords. {_PACK}",
    "member_name": f"Pack every file once, under a plain relative name of letters, digits, . _ - /. {_PACK}",
    "trailing_data": f"The file has to begin and end where the archive does. {_PACK}",
    "expansion": f"Weights shrink little; an archive may expand to 50 times its size. {_PACK}",
    "too_many_files": f"Pack what the model is loaded from: at most 64 files. {_PACK}",
    # The files
    "pickle_weights": f"Weights must be safetensors: loading a pickle can run code. {_PACK}",
    "dangerous_file": f"Leave it out: only safetensors, JSON and text are taken. {_PACK}",
    "nested_archive": f"Pack the files themselves, not an archive of them. {_PACK}",
    "unknown_file": f"Leave it out: only safetensors, JSON and text are taken. {_PACK}",
    "adapter": "Send whole weights: `python -m evaluation pack FOLDER --base BASE` merges an adapter into its base.",
    "file_kind": f"Every file has to be a regular file of its own: no link, no device. {_PACK}",
    "file_too_large": "JSON files have at most 4 MiB, tokenizer.json 32 MiB, all JSON together 80 MiB, all "
    f"weights together {describe_bytes(MOST_WEIGHTS)}.",
    "empty_folder": "Send the folder that the model is loaded from, with config.json, safetensors and tokenizer.json.",
    # JSON
    "json_damaged": "Every JSON file is UTF-8 text with one value, no key twice, no NaN, and few levels deep.",
    "forbidden_key": "Remove the key: it can load code or files from elsewhere. Models are loaded without it.",
    "own_code": "Code beside the weights is never run. Convert the checkpoint for the library's class. If that class "
    "gives the same outputs, remove auto_map from the file to state that.",
    "ignored_key": "Send a checkpoint that the library's class computes as it was trained. If the model was "
    "trained as the class computes, remove the key to state that.",
    "unknown_key": "Remove the key: only the keys that the documentation lists are taken in this file.",
    "value": "Give a value of the kind and size that the message names.",
    # The model
    "missing_config": "Add the file as its library saved it; a download may have left it out. " + _PACK,
    "model_type": "The architecture has to be one of texts that the site's release of transformers has in itself, "
    "without code beside the weights; its page /models/ lists them.",
    "configuration": "The configuration has to make a model of its class: with values of the types that the class "
    "declares, and sizes that go together. Save it again with save_pretrained of the published release.",
    "too_costly": "The library has to set the model up, without its weights, within a minute and 2 GiB: with fewer "
    "layers, fewer parts of a layer, or a tokenizer that does not multiply what it replaces.",
    "dimension_cap": "The size is over what is accepted here; the message names the limit.",
    "wrong_kind": "Choose the architecture that the checkpoint is for, or send another checkpoint.",
    "unknown_kind": "Send a sentence-transformers folder (modules.json), or say what the model is.",
    "pooling_needed": "Say how the tokens' outputs become one: max or sum for SPLADE, mean or cls for a dense encoder.",
    "module_type": "modules.json may name modules of sentence-transformers itself and of PyLate, in any spelling.",
    "module_not_run": "Use a model whose tokenizer is a tokenizer.json, and which reads texts.",
    "module_order": "The modules have to be in an order that makes one of the known kinds of model.",
    "activation": "The activation has to be torch.nn.modules.linear.Identity, or Tanh, ReLU, GELU, SiLU or Sigmoid of "
    "torch.nn.modules.activation.",
    "dimension_mismatch": "Each module has to take as many dimensions as the one before gives.",
    "missing_projection": "A ColBERT checkpoint has to bring its projection; without one the library makes up a random "
    "one.",
    "labels": "A cross-encoder has one label or two, a model that weighs terms one.",
    # Weights
    "missing_weights": f"The checkpoint must contain the weights of all layers. {_PACK}",
    "weights_header": "Files of weights are whole safetensors as their library writes them: no gaps, no empty tensors, "
    f"at most 10,000 tensors in all, described in at most 4 MiB. {_PACK}",
    "weights_index": "weight_map names every tensor, and the one of at most 64 safetensors files beside the "
    "index that holds it.",
    "weights_type": "Weights are float32, float16 or bfloat16. Convert the model to one of these and pack it again.",
    "weights_shape": "Every weight has to have the shape that follows from the configuration.",
    "weights_unknown": "Remove tensors that the class of the module or layer does not have. The model_type may "
    "name another class than the one that was trained.",
    "nan_weights": "Weights have to be finite numbers. The training diverged, or the conversion overflowed.",
    # Tokenizer
    "missing_tokenizer": "Send tokenizer.json: load the tokenizer with transformers, and save it with save_pretrained.",
    "tokenizer_vocabulary": "Every token needs an id of its own, below the number of the model's embeddings.",
    "tokenizer_regex": "Regular expressions in tokenizer.json are those of well-known tokenizers, or simple ones.",
    "tokenizer_value": "tokenizer.json has to be as the tokenizers library writes it.",
    # Fetching
    "hub_downloads_off": "Upload the checkpoint as an archive; the operator turns fetching on with HUB_DOWNLOADS=1 or "
    "in the admin.",
    "hub_missing": "Name a public model that has safetensors, and one of its commits.",
    "hub_name": "Name the model as owner/name, and a commit by its 40 hexadecimal digits.",
    "hub_too_large": "Choose a smaller model, or upload only what is needed.",
    "hub_unreachable": "Try again later, or upload the checkpoint as an archive.",
    # Remarks
    "known_for_dot": "Nothing to do; where it was trained for cosine, say similarity = cosine in the submission.",
    "prompt_names": "Without a choice only prompts named query, and document, passage or corpus, are put before texts.",
    "prompt_template": "Nothing to do where the model was trained otherwise.",
    "left_out": "Nothing to do: the file is not needed, and was not taken.",
    "keys_left_out": "The keys are not used here. Nothing to do if the model was trained without them.",
    "keys_not_read": "The library's class of this type does not read the keys. Nothing to do if the model was "
    "trained without them.",
    "weights_not_sent": "Send the weights too when you submit it; whether they are finite is asked then.",
    "weights_left_out": "Nothing to do: the weights belong to no part that is used.",
}
