"""Callbacks for Keras's `fit`: `Resume` continues an interrupted training, `Watch` reports how fast the input was."""
