"""Safe loading of models and batched inference, shared by the engines that run models.

Only modules of this package, and functions of engines that call them, import torch. Importing `evaluation.engines`
does not, so that web processes and scorers do not load it.
"""
