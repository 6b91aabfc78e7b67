"""Exports of networks of PyTorch and transformers, with random weights."""
