"""What Keras's `fit` calls while it trains."""
