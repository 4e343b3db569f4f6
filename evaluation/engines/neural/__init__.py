"""What the engines that run a model share: loading it safely, and feeding it in batches.

Only modules of this package, and functions of the engines that call them, import torch; importing `evaluation.engines`
itself does not, so that web pages and scorers stay free of it.
"""
